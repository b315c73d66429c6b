"""What survives a restart: the checkpoint, and the spool of batches that the interconnect did not take yet."""
