"""Batches in flight: the window of what is not acknowledged, and the AMQP link that carries it."""
