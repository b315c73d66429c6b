"""What a person runs for one source: its first set-up, its end, copies of tables."""
