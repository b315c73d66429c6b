"""The lake: Kafka into bronze, bronze into silver, and queries in SQL, with PySpark and Delta.

A module imports from the layers below its own, and within its own package (tests/unit/test_layers.py):

    command  submit  jvm_warmup        what is started: `headrace lake`, spark-submit, the set-up
    serve/                             SQL for many clients, and loads in the same process
    preflight                          whether a load can work, and whether it is needed at all
    load                               one load of a stream, or loads until stopped
    maintenance/                       compaction, vacuum, replays
    verify/                            comparison with the sources
    query/                             published rows, live rows, the past; SQL
    run_log                            a row for each step of a load
    silver/                            changes merged into tables
    bronze/                            records appended, each exactly once
    kafka/                             topics and offsets
    session                            Spark sessions, and those that loads use again
    state/                             commit notes, published versions, schemas, names
    storage  log_store  tuning  errors
"""
