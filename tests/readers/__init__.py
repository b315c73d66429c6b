"""Readers of Delta that are not in the project's own environment, at what loads write."""
