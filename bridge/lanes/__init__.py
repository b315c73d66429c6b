"""Lanes: each one transactional producer, whose transactions carry what sources have ready."""
