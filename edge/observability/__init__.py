"""The edge's figures, how far behind its log it is, and what its endpoint answers."""
