"""The edge's figures, and how far behind its log it is."""
