"""The schemas of records in Avro: registered in a schema registry, and their ids put into the records."""
