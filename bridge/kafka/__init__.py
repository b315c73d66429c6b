"""Kafka: the client, topics, positions and transactions."""
