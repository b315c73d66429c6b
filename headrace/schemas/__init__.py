"""Schemas of a table's records for other tools, made of its schema record: one module for each target form."""
