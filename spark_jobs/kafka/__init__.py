"""What Kafka has of a stream: topics, offsets, positions of consumer groups; the only package that asks Kafka itself."""
