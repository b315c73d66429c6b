"""Servers that only tests start, and the jars that only tests need."""
