"""Deliveries: records of Kafka topics sent to AMQP addresses of regions, in order per key, settled end to end."""
