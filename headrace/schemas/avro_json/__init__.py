"""Records in Avro as the JSON that an edge would have written: the reverse of edge/records/avro_records.py.

It holds for the layout of headrace/schemas/avro.py alone, and what differs is refused, never with a value shown. Only the
standard library is imported, and names rather than modules of this package, so that Spark can send it to its executors as it is.
"""
