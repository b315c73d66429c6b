"""Proof that silver equals the sources: the half of headquarters, which compares (headrace/verify reads the sources)."""
