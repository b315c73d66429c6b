"""Which topic and partition a record goes to, which schema id it carries, and which records wait."""
