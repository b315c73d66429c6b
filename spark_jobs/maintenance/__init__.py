"""Compaction and the removal of old files, and replays of bronze and silver."""
