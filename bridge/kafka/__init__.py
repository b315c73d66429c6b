"""Kafka: clients, topics, entries of groups, and producers."""
