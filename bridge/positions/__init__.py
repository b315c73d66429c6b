"""Committed positions: how they are read, moved, exported and imported."""
