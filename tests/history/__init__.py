"""The history checker: does Kafka hold exactly what a source committed, once each and in commit order?

The truth comes from the server's own `test_decoding` plugin through a slot of its own, so that nothing of the edge takes part
in it (`truth`). The records come from a `read_committed` read (`records`). `checker` compares the two.
"""
