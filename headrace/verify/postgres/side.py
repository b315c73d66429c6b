"""PostgreSQL's side of a comparison: one table's rows, summed by the server.

Ranges of an integer key are a query each, which finds its rows by the key's index; ranges of hashes are one query that reads
the table once. Only sums, hashes and keys leave the server. Made by database.py.

What a source's database refuses, as errors that state who must act and what to run there.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any

from headrace.configuration.databases import PostgresqlConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.verify import canonical
from headrace.verify.canonical import Column
from headrace.verify.comparison import DIGITS, Digest, Grid, Row, RowHash, SourceTable, Span, check_hashes

# Statements are built from quoted names of the catalog, its row filters, and numbers, nothing else.
# ruff: noqa: S608


#: Types of a leading key column whose numbers make the ranges.
_INTEGERS = {"int2", "int4", "int8", "oid"}
#: Hashes are read as two numbers of 60 bits; their sum is a numeric, which has no end.
_SUMS = "count(*), " + ", ".join(
    f"coalesce(sum(('x' || substr(h, {start}, {DIGITS}))::bit({DIGITS * 4})::bigint), 0)" for start in (1, 1 + DIGITS)
)
_PLACE = f"('x' || left(k, {DIGITS}))::bit({DIGITS * 4})::bigint"


class PostgresSide:
    """A table of PostgreSQL as a side of a comparison."""

    def __init__(
        self,
        query: Callable[[str, SourceTable], list[tuple[Any, ...]]],
        table: SourceTable,
        columns: list[Column],
        key: list[Column],
        *,
        only: str = "",
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        """`only`: the condition, in SQL of the catalog, of the rows that are published; empty for all."""
        self._query = query
        self._table = table
        self._columns = columns
        self._key = key
        # A table with children by inheritance has its own rows alone; a partitioned one has none but its partitions'.
        rows = f"{'' if table.partitioned else 'ONLY '}{canonical.source_table(table.schema, table.name)}"
        self._from = f"(SELECT * FROM {rows} WHERE {only}) AS published" if only else rows
        self._row = canonical.source_row(columns)
        self._key_hash = _md5(canonical.source_row(key or columns))
        self._lead = canonical.source_name(key[0].name) if key else ""
        self._on_progress = on_progress

    def bounds(self) -> tuple[int, int] | None:
        """Return the least and greatest number of the leading key column; None when it is no integer, or without rows."""
        if not self._key or self._table.columns[self._key[0].name].name not in _INTEGERS:
            return None
        ((least, greatest),) = self._ask(
            f"SELECT min({self._lead})::bigint, max({self._lead})::bigint FROM {self._from}"
        )
        return None if least is None else (least, greatest)

    def about(self) -> int:
        """Return about how many rows there are, as the server's planner estimates."""
        ((plan,),) = self._ask(f"EXPLAIN (FORMAT JSON) SELECT FROM {self._from}")
        return int(plan[0]["Plan"]["Plan Rows"])

    def count(self) -> int:
        """Return how many rows there are."""
        ((rows,),) = self._ask(f"SELECT count(*) FROM {self._from}")
        return int(rows)

    def digests(self, grid: Grid, cells: Collection[int] | None = None) -> dict[int, Digest]:
        """Return the digest of each cell of a grid, or of those named; an empty cell is not there."""
        numbers = sorted(cells) if cells is not None else range(grid.cells)
        if grid.span.by == "key":
            return self._by_key(grid, numbers)
        chosen = "" if cells is None else f" AND (p - {grid.span.low}) / {grid.width} IN ({_numbers(numbers)})"
        placed = f"SELECT {_PLACE} AS p, h FROM ({self._hashed(grid.within)}) s"
        sums = self._ask(
            f"SELECT (p - {grid.span.low}) / {grid.width}, {_SUMS} FROM ({placed}) r "
            f"WHERE {grid.span.condition('p')}{chosen} GROUP BY 1"
        )
        digests = {int(cell): Digest(rows, int(first), int(second)) for cell, rows, first, second in sums}
        self._report(digests)
        return digests

    def hashes(self, grid: Grid, cells: Collection[int], most: int) -> list[RowHash]:
        """Return the rows in some cells of a grid, by key hash, `most` at most."""
        result = self._ask(
            "SELECT k, left(encode(sha256(convert_to(array_to_string(hashes, ''), 'UTF8')), 'hex'), 32) "
            f"FROM ({self._listed(grid, cells)}) l "
            f'ORDER BY k COLLATE "C", hashes LIMIT {int(most)}'
        )
        return [RowHash(*row) for row in result]

    def rows(self, grid: Grid, cells: Collection[int], key_hashes: Collection[str]) -> list[Row]:
        """Return the rows in some cells of a grid whose keys have these hashes; raise CorruptInput for what is no hash."""
        literals = ", ".join(f"'{key_hash}'" for key_hash in check_hashes(key_hashes))
        result = self._ask(
            f"SELECT k, names, hashes FROM ({self._listed(grid, cells)}) l WHERE k IN ({literals}) "
            'ORDER BY k COLLATE "C", hashes'
        )
        return [Row(key_hash=key_hash, key=tuple(key), columns=tuple(columns)) for key_hash, key, columns in result]

    def _listed(self, grid: Grid, cells: Collection[int]) -> str:
        """Return the statement that gives key hash `k`, key, and hashes of the columns of the rows in some cells."""
        keys = ", ".join(f"format('%s', {canonical.source_name(column.name)})" for column in self._key)
        hashes = ", ".join(_md5(canonical.source_row([column])) for column in self._columns)
        spans = [grid.cell(cell) for cell in cells]
        by_key = grid.span.by == "key"
        where = [span.condition(self._lead) for span in grid.within]
        where += [f"({' OR '.join(span.condition(self._lead) for span in spans)})"] if by_key else []
        hashed = (
            f"SELECT {self._key_hash} AS k, ARRAY[{keys}]::text[] AS names, ARRAY[{hashes}]::text[] AS hashes "
            f"FROM {self._from} WHERE {' AND '.join(where) or 'true'} OFFSET 0"
        )
        placed = f"SELECT k, names, hashes, {_PLACE} AS p FROM ({hashed}) s"
        chosen = "true" if by_key else " OR ".join(span.condition("p") for span in spans)
        return f"SELECT k, names, hashes FROM ({placed}) r WHERE {chosen}"

    def _by_key(self, grid: Grid, cells: Sequence[int]) -> dict[int, Digest]:
        digests = {}
        for cell in cells:
            within = (*grid.within, grid.cell(cell))
            ((rows, first, second),) = self._ask(f"SELECT {_SUMS} FROM ({self._hashed(within)}) r")
            if rows:
                digests[cell] = Digest(rows, int(first), int(second))
                self._report({cell: digests[cell]})
        return digests

    def _hashed(self, within: Sequence[Span]) -> str:
        """Return the statement that gives key hash `k` and row hash `h` of the rows in some spans of the key."""
        where = " AND ".join(span.condition(self._lead) for span in within) or "true"
        return f"SELECT {self._key_hash} AS k, {_md5(self._row)} AS h FROM {self._from} WHERE {where} OFFSET 0"

    def _report(self, digests: dict[int, Digest]) -> None:
        if self._on_progress:
            self._on_progress(sum(digest.rows for digest in digests.values()))

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self._query(statement, self._table)


def _md5(text: str) -> str:
    # Bytes in UTF-8, as Spark hashes them, whatever the database's own encoding.
    return f"md5(convert_to({text}, 'UTF8'))"


def _numbers(numbers: Collection[int]) -> str:
    return ", ".join(map(str, numbers))


_RESTING = "Or let writers rest, load, and compare with --at-rest, which needs no slot."


def _may_not_replicate(source: str, address: PostgresqlConnection) -> NeedsOperator:
    return NeedsOperator(
        f"source {source}: {address} makes no temporary slot: user {address.user!r} may not replicate",
        hint=f"Run there: ALTER ROLE {canonical.source_name(address.user)} REPLICATION; {_RESTING}",
    )


def no_slot(source: str, address: PostgresqlConnection, code: str | None, timeout: str) -> ReplicationError:
    """Return why no temporary slot could be made; `code` is PostgreSQL's, None when the connection was lost."""
    refused = f"source {source}: {address} makes no temporary slot"
    match code:
        case "42501":
            return _may_not_replicate(source, address)
        case "55000":
            return NeedsOperator(
                f"{refused}: its wal_level is not logical, or it is a replica that cannot",
                hint=f"Name the primary, the server that is captured. {_RESTING}",
            )
        case "53400":
            return NeedsOperator(
                f"{refused}: all replication slots are in use", hint=f"Raise max_replication_slots there. {_RESTING}"
            )
        case "55P03":
            return Retryable(
                f"{refused} within {timeout}: a transaction that writes has been open for longer",
                hint="Verify again when it has ended; pg_stat_activity shows it by its xact_start.",
            )
        case None:
            return NotConnected(
                f"source {source}: the connection to {address} was lost", hint="Verify again when the database is back."
            )
        case _:
            return NeedsOperator(f"{refused}: PostgreSQL error {code}", hint=f"See the log of {address}. {_RESTING}")


def refused(source: str, address: PostgresqlConnection, settings: str, message: str) -> ReplicationError:
    """Return why no connection could be made; `settings` names the file, `message` is the driver's message."""
    # Without a connection there is no error code; a server that answers starts its message with FATAL.
    _, fatal, answer = message.partition("FATAL:")
    if "WAL sender" in answer:
        return _may_not_replicate(source, address)
    starting = ("starting up", "shutting down", "recovery", "too many", "not yet accepting")
    if fatal and not any(word in answer for word in starting):
        return NeedsOperator(
            f"source {source}: {address} refuses user {address.user!r}: {answer.strip().splitlines()[0]}",
            hint=f"Check the source's [postgresql] in {settings}: database, user, password.",
        )
    return NotConnected(
        f"source {source}: {address} cannot be reached",
        hint=f"Check that the database runs, and host and port of the source in {settings}.",
    )


def reading(source: str, address: PostgresqlConnection, about: str | SourceTable, code: str | None) -> ReplicationError:
    """Return why something could not be read; `code` is PostgreSQL's, None when the connection was lost."""
    if code == "42501" and isinstance(about, SourceTable):
        table, user = canonical.source_table(about.schema, about.name), canonical.source_name(address.user)
        return NeedsOperator(
            f"source {source}: user {address.user!r} may not read {about}, or row security hides some of it from them",
            hint=f"Run there: GRANT SELECT ON {table} TO {user}; (and USAGE on its schema). "
            f"Where the table has row security: ALTER ROLE {user} BYPASSRLS;",
        )
    if code is None:
        return NotConnected(
            f"source {source}: the connection to {address} was lost while reading {about}",
            hint="Verify again when the database is back; nothing was changed.",
        )
    if code == "57014":
        return Retryable(
            f"source {source}: reading {about} took longer than a statement may take, or was cancelled",
            hint="Verify again, with --sample or one --table at a time; or raise verify_statement_seconds in the edge's file.",
        )
    return NeedsOperator(
        f"source {source}: {about} cannot be read: PostgreSQL error {code}",
        hint=f"See the log of {address} for the statement and its message.",
    )
