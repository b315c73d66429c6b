"""The edge agent: captures one database's changes from its log and pushes them, in order, across the interconnect.

Its packages are layers; each imports only those to its right, and what they import (tests/unit/test_layers.py):

    command                              what a person runs
    agent, commands/                     one source's edge: its life; its first set-up, its end, copies of its tables
    session                              one session with the database
    answers/                             what the endpoint and headquarters may ask, answered
    doctor                               looks at everything that a source needs
    engine_registry                      which engine a source has
    postgres/   mysql/                   the engines: neither imports the other
    engine                               what an engine gives to the agent
    snapshot/                            copies of existing rows, chunk by chunk, of no engine
    progress/                            what survives a restart: checkpoint and spool
    delivery/                            batches in flight, and the AMQP link that carries them
    observability/                       figures, lag
    requests/                            requests from headquarters: their links, what is taken, and answers
    records/                             from a change to a batch of finished Kafka records
    compiled/                            row decoders in C, for both engines
"""
