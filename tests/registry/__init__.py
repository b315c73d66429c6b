"""Records in Avro, with a real registry and real readers."""
