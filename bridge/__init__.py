"""The bridge: batches in by AMQP 1.0, records exactly once into Kafka."""
