"""The bridge: batches in by AMQP 1.0, records exactly once into Kafka.

Its packages are layers; each imports only those below it (tests/unit/test_layers.py):

    command                              what a person runs
    bridge                               one bridge: its parts, started and stopped together
    doctor  reloader  service            looks at what a bridge needs; changes of its file; its metrics, readiness and threads
    amqp/                                connections, links, credit, outcomes
    requests/                            requests to edges and their answers
    deliveries/  group/  withheld/       records sent to branches; bridges that share sources; records that wait for a schema
    lanes/                               transactions into Kafka, and what hangs
    source/                              one source: gaps, session, state, owner
    positions/                           committed positions: read, moved, exported
    routing/                             topic, partition and schema id of a record
    kafka/                               clients, topics, entries of groups, producers
    model/  metrics                      what all of them speak of
"""
