"""Bronze: a stream's records as they came, each exactly once, and what Kafka has beyond them."""
