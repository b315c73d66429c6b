"""Silver: the current rows of each table, by source and key, each source up to the end of a transaction."""
