"""Queries in Spark SQL: the lake as published, as it is now (`silver_live`), or as it was at a time."""
