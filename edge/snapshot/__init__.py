"""The snapshot: existing rows of tables, chunk by chunk, beside the stream (design decision 10)."""
