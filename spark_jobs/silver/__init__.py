"""Silver: the current rows of each table, by source and key, at a transaction boundary."""
