"""Requests of headquarters to edges, and their answers, between two Kafka topics and the edges' links (docs/requests.md)."""
