"""What Kafka has of a stream: topics, offsets, positions of consumer groups; the only package that uses Kafka's client."""
