"""What the lake records about itself: notes in commits, published versions, schemas, names. Reads no change."""
