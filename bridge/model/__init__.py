"""What all parts of the bridge speak of: positions, the chain, deliveries, routes and the ports. No sockets, no Kafka."""
