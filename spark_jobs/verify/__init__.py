"""Proof that a silver table equals the table at its source: count and checksum, made inside the engines."""
