"""The snapshot: existing rows of tables, chunk by chunk, next to the stream (design decision 10)."""
