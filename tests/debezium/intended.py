"""What is meant to differ from Debezium's records, and why: all else is a defect.

By the field's path, as tests/debezium/compare.py names it; one that ends with `*` stands for all that begin so.
"""

#: Of all records.
ENVELOPE = {
    "headers.__debezium.context.*": "names Debezium's own connector, task and run",
    "value.source.version": "each product has its own",
    "value.source.name": "Debezium's is the prefix of its topics; ours is the source, REGION/NAME",
    "value.source.position": "added: the position of the change, by which records are in order and unique",
    "value.transaction.id": "the number of the transaction is the same; behind it ours has the commit's LSN",
    "value.transaction.last": "added: ends a transaction",
}
#: Of changes of some kinds.
KINDS = {
    "value.former_key.*": "added to the second record of a changed key: its former key",
    "value.unchanged": "added: names the columns that the log does not carry",
    "value.after.later": "Connect's JSON converter writes a column's default in place of null; ours is the row's value",
}
#: Of values.
VALUES = {
    "value.after.box": "Debezium leaves columns of this type out; ours is the database's text",
    "value.before.box": "as in the new row",
    "value.after.ints": "of an array of arrays Debezium writes nulls; ours has the values",
}
#: With `decimal = "string"`.
TEXTS = {"value.after.n": "Debezium's text of NaN is NAN; ours is PostgreSQL's"}
#: Of all records of MariaDB.
MARIADB_ENVELOPE = {
    "headers.__debezium.context.*": "names Debezium's own connector, task and run",
    "value.source.version": "each product has its own",
    "value.source.name": "Debezium's is the prefix of its topics; ours is the source, REGION/NAME",
    "value.source.schema": "added: repeats the database, since tables of every engine are named by a schema",
    "value.source.position": "added: the position of the change, by which records are in order and unique",
    "value.transaction.last": "added: ends a transaction",
    "value.former_key.*": "added to the second record of a changed key: its former key",
    "value.after.later": "Connect's JSON converter writes a column's default in place of null; ours is the row's value",
}
#: Of values of MariaDB.
MARIADB_VALUES = {
    "value.after.p.*": "the log does not say which geometries a column takes: ours has no x and y of a POINT, which its WKB has",
    "value.before.p.*": "as in the new row",
}
#: With `time = "connect"`.
MARIADB_CONNECT = {
    f"value.{row}.{column}": "Connect's Time is within one day: of others Debezium has null; ours is the milliseconds"
    for row in ("before", "after")
    for column in ("ti", "ti3")
}
