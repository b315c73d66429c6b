"""Sources of PostgreSQL."""
