"""PostgreSQL as a source: its log, slot and publication."""
