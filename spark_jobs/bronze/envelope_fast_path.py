"""A record's envelope read from the record's end, where our edges write it, without parsing the row ahead of it.

    {"before":B,"after":A,"source":{"version":…,"connector":…,"name":…,"ts_ms":…,"snapshot":…,"db":…,"schema":…,"table":…,
    …,"position":…},"op":…,"ts_ms":…,"transaction":{"id":…,"total_order":…,"last":true}}

The end is cut at its commas, and every piece must be where it is there, from the source to the record's last brace: inside
a row the quotes of such text would be escaped. A value of any other form is not plain, and its envelope is parsed as JSON,
which costs several times as much. Called by envelope.py.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

#: Whether a record was read here; otherwise none of the other columns counts.
PLAIN = "plain"
_LAST = ',"last":true}}'
#: Bytes at the end that hold the source, unless its names are very long.
_BYTES = 512
#: Pieces from the end: of PostgreSQL's source block the table's name is the eighth, of MariaDB's and MySQL's the eleventh.
_TRANSACTION, _READ, _OP, _POSITION = -2, -3, -4, -5
_TABLE = (-8, -11)
#: From the table's name back.
_SCHEMA, _COMMITTED, _NAME, _SOURCE, _AHEAD, _BEFORE = -1, -4, -5, -7, -8, -9
_HEADS = {
    "transaction": '"transaction":{"id":"',
    "read": '"ts_ms":',
    "op": '"op":"',
    "position": '"position":"',
    "table": '"table":"',
    "schema": '"schema":"',
    "committed": '"ts_ms":',
    "name": '"name":"',
}


def pieces(value: Column) -> list[Column]:
    """Return the pieces of a record's end, as columns next to the record; `value` is binary."""
    last = value.cast("string").endswith(_LAST)
    upto = F.octet_length(value) - F.when(last, len(_LAST)).otherwise(0)
    end = F.substring(value, F.greatest(upto - _BYTES, F.lit(0)) + 1, F.least(upto, F.lit(_BYTES)))
    return [F.split(end.cast("string"), ",").alias("_pieces"), last.alias("last")]


def read(records: DataFrame) -> DataFrame:
    """Return the records with the fields of their ends, and whether these count."""
    near, far = (_piece(F.lit(place)).startswith(_HEADS["table"]) for place in _TABLE)
    placed = records.withColumn("_table", F.when(near, _TABLE[0]).when(far, _TABLE[1]))
    table = F.col("_table")
    pieces = placed.select(
        *(column for column in records.columns if column != "_pieces"),
        _piece(F.lit(-1)).alias("_order"),
        *(
            _piece(place).alias(f"_{name}")
            for name, place in {
                "transaction": F.lit(_TRANSACTION),
                "read": F.lit(_READ),
                "op": F.lit(_OP),
                "position": F.lit(_POSITION),
                "table": table,
                "schema": table + _SCHEMA,
                "committed": table + _COMMITTED,
                "name": table + _NAME,
                "source": table + _SOURCE,
                "ahead": table + _AHEAD,
                "before": table + _BEFORE,
            }.items()
        ),
    )
    return pieces.select(
        *(column for column in records.columns if column != "_pieces"),
        F.coalesce(_plain(), F.lit(False)).alias(PLAIN),
        _inside("name", 1).alias("source_name"),
        _inside("schema", 1).alias("schema_name"),
        _inside("table", 1).alias("table_name"),
        _inside("op", 1).alias("op"),
        _inside("position", 2).alias("place"),
        _inside("transaction", 1).alias("transaction_id"),
        _inside("committed", 0).try_cast("bigint").alias("ts_ms"),
        # Names of columns that the log did not carry are directly before the source.
        F.col("_ahead").endswith("]").alias("partial"),
    )


def _piece(place: Column) -> Column:
    return F.try_element_at("_pieces", place)


def _inside(name: str, after: int) -> Column:
    """Return what a piece holds behind its head, without so many characters at its end."""
    # As bytes: a text is counted from its beginning, character by character, for each cut.
    piece, head = F.col(f"_{name}").cast("binary"), len(_HEADS[name])
    return F.substring(piece, F.lit(head + 1), F.octet_length(piece) - (head + after)).cast("string")


def _plain() -> Column:
    """Return whether every piece is where our edges' records have it, and no name holds an escape.

    A piece whose next one begins with its own quote has ended with one: its end needs no further check.
    """
    value = F.col("value")
    found = value.startswith('{"before":') & F.col("_source").startswith('"source":{"version":"')
    for name, head in _HEADS.items():
        found &= F.col(f"_{name}").startswith(head)
    found &= F.col("_table").endswith('"')
    found &= F.col("_position").endswith('"}') & F.col("_order").startswith('"total_order":')
    found &= F.col("last") | F.col("_order").endswith("}}")
    names = F.concat(*(f"_{name}" for name in ("name", "schema", "table", "transaction")))
    found &= ~names.contains("\\")
    # What was too large is listed between the names of columns and the source; the first piece may be the end of one.
    too_large = F.when(F.col("_before").isNull(), value.contains(',"too_large":{')).otherwise(
        F.col("_ahead").startswith('"sha256":')
    )
    return found & F.col("_ahead").isNotNull() & ~too_large
