"""Batches of a small table, and what is in them."""

from headrace.position import Position
from tests.unit.edge.postgres.messages import EPOCH, INT8, Column, insert, opened, records, relation

TABLE = relation(Column("id", INT8, key=True), Column("note"))
START = Position.start(EPOCH)
#: The smallest batches that there are: 16 KB of rows.
SMALL = 1


def shape(batches):
    """For each batch, its records: `s` for a schema record, `.` for a change, `!` for the last change of a transaction."""
    marks = []
    for batch in batches:
        marks.append("")
        for record in records(opened(batch)):
            last = record.value.get("transaction", {}).get("last")
            marks[-1] += "s" if "op" not in record.value else "!" if last else "."
    return marks


def values_of(batch):
    """Size of a batch's values, in bytes."""
    return sum(len(value or b"") for value in opened(batch).values)


def many(count, size):
    return [insert(number, "x" * size) for number in range(count)]
