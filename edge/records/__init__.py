"""From a change to a batch of finished Kafka records: what tables and columns leave, and how batches are cut."""
