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
#: Of all records of MariaDB and MySQL.
BINLOG_ENVELOPE = {
    "headers.__debezium.context.*": "names Debezium's own connector, task and run",
    "value.source.version": "each product has its own",
    "value.source.name": "Debezium's is the prefix of its topics; ours is the source, REGION/NAME",
    "value.source.schema": "added: repeats the database, since tables of every engine are named by a schema",
    "value.source.position": "added: the position of the change, by which records are in order and unique",
    "value.transaction.last": "added: ends a transaction",
    "value.former_key.*": "added to the second record of a changed key: its former key",
}
#: Of changes of some kinds.
BINLOG_KINDS = {
    **dict.fromkeys(
        ("value.after.later", "value.before.afterwards"),
        "Connect's JSON converter writes a column's default in place of null; ours is the row's value",
    ),
    **dict.fromkeys(
        ("headers.__debezium.newkey.a", "headers.__debezium.oldkey.a"),
        "Connect's own converter of headers writes a decimal as a number; ours is as in the key",
    ),
}


def _in_rows(reasons: dict[str, str]) -> dict[str, str]:
    return {f"value.{row}.{column}": reason for column, reason in reasons.items() for row in ("before", "after")}


#: Of their values.
BINLOG_VALUES = _in_rows(
    {
        "p.*": "the log does not say which geometries a column takes: ours has no x and y of a POINT, which its WKB has",
        "fd": "the log does not say how many digits a FLOAT has: Debezium's is the double next to it; ours is the server's",
        "t8u": "Debezium's numbers above 2^63 - 1 are negative, unless it is set otherwise; ours are the server's",
        "y": "Debezium adds 1900 to the YEAR 0000 too; ours is 0, as the server has it",
    }
)
#: With `time = "connect"`.
BINLOG_CONNECT = _in_rows(
    dict.fromkeys(
        ("ti", "ti3", "ti6"), "Connect's Time is within one day: of others Debezium has null; ours is the milliseconds"
    )
)
#: Of MariaDB alone, whose connector is of release 3.5.
MARIADB_VALUES = _in_rows(
    dict.fromkeys(
        ("ts", "ts3", "ts6"),
        "of a zero TIMESTAMP that may be null Debezium 3.5 has the beginning of 1970; ours is null, as with 3.6 and MySQL",
    )
)
#: Of MySQL alone.
MYSQL_VALUES = _in_rows(
    {
        "ps.*": "as p",
        "j.time": "Debezium makes a text of the document itself; ours is the text that the server prints, as in copied rows",
        "j.datetime": "as j.time",
        "j.bytes": "as j.time",
        "j.double": "as j.time: the same number",
        "must_ts": "a zero TIMESTAMP is null to Debezium, in whose place Connect's JSON converter writes the column's default; "
        "the log has no defaults: ours is the beginning of 1970, as Debezium has it for a column without one",
    }
)
