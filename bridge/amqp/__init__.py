"""AMQP 1.0: connections, links, credit, outcomes."""
