"""The source's side of a comparison: one table's rows, summed by PostgreSQL.

One pass over the table for each question; only sums, hashes and keys leave the server. Called by verify.py.
"""
# Statements are built from quoted names of the catalog and from hexadecimal digits, nothing else.
# ruff: noqa: S608

from collections.abc import Sequence
from typing import Any

from spark_jobs.verify import canonical
from spark_jobs.verify.canonical import Column
from spark_jobs.verify.digest import DIGITS, Digest, Row
from spark_jobs.verify.source import SourceDatabase, SourceTable


class SourceSide:
    """A table at the source as a side of a comparison."""

    def __init__(self, database: SourceDatabase, table: SourceTable, columns: list[Column], key: list[Column]) -> None:
        self._database = database
        self._table = table
        self._columns = columns
        self._key = key
        # A table with children by inheritance has its own rows alone; a partitioned one has none but its partitions'.
        self._from = f"{'' if table.partitioned else 'ONLY '}{_quoted(table)}"
        self._row = canonical.source_row(columns)
        self._key_text = canonical.source_row(key or columns)

    def whole(self) -> Digest:
        """Return the digest of all rows."""
        ((rows, first, second),) = self._ask(
            f"SELECT {_SUMS} FROM (SELECT {_md5(self._row)} AS h FROM {self._from} OFFSET 0) r"
        )
        return Digest(rows, int(first), int(second))

    def ranges(self, digits: int, within: Sequence[str]) -> dict[str, Digest]:
        """Return the digest of each hash range inside the given prefixes."""
        hashed = f"SELECT {_md5(self._key_text)} AS k, {_md5(self._row)} AS h FROM {self._from} OFFSET 0"
        found = self._ask(f"SELECT left(k, {digits}), {_SUMS} FROM ({hashed}) r WHERE {_inside(within)} GROUP BY 1")
        return {prefix: Digest(rows, int(first), int(second)) for prefix, rows, first, second in found}

    def rows(self, within: Sequence[str], most: int) -> list[Row]:
        """Return the rows in the given prefixes, by key hash, `most` at most."""
        keys = ", ".join(f"format('%s', {canonical.source_name(column.name)})" for column in self._key)
        hashes = ", ".join(_md5(canonical.source_row([column])) for column in self._columns)
        hashed = (
            f"SELECT {_md5(self._key_text)} AS k, ARRAY[{keys}]::text[] AS names, ARRAY[{hashes}]::text[] AS hashes "
            f"FROM {self._from} OFFSET 0"
        )
        found = self._ask(
            f"SELECT k, names, hashes FROM ({hashed}) r WHERE {_inside(within)} ORDER BY k, hashes LIMIT {most}"
        )
        return [Row(key_hash=key_hash, key=tuple(key), columns=tuple(columns)) for key_hash, key, columns in found]

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self._database.query(statement, str(self._table))


#: Hashes are read as two numbers of 60 bits; their sum is a numeric, which has no end.
_SUMS = "count(*), " + ", ".join(
    f"coalesce(sum(('x' || substr(h, {start}, {DIGITS}))::bit({DIGITS * 4})::bigint), 0)" for start in (1, 1 + DIGITS)
)


def _md5(text: str) -> str:
    # Bytes in UTF-8, as Spark hashes them, whatever the database's own encoding.
    return f"md5(convert_to({text}, 'UTF8'))"


def _inside(within: Sequence[str]) -> str:
    """Return the condition that a key hash starts with one of the prefixes, which are all of one length."""
    if not within or within == [""]:
        return "true"
    listed = ", ".join(f"'{prefix}'" for prefix in within)
    return f"left(k, {len(within[0])}) IN ({listed})"


def _quoted(table: SourceTable) -> str:
    return f"{canonical.source_name(table.schema)}.{canonical.source_name(table.name)}"
