"""The edge: captures one source from its redo log and sends its changes over AMQP 1.0."""
