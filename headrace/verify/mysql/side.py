"""MariaDB's and MySQL's side of a comparison: one table's rows, summed by the server; where its log was then, and whether
anything that is compared came since. Made by database.py.

Ranges of an integer key are a query each, which finds its rows by the key's index; ranges of hashes are one query that reads the
table once. Only sums, hashes and keys leave the server. What the server refuses becomes errors that state who must act and what
to run there.

A position's commit is the number of the binlog file (upper 32 bits) and the offset at which the transaction's GTID event ends
(lower 32 bits); a snapshot's place is where the next GTID event begins. So the commits of what it sees are below it, all others
above.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from headrace.configuration.databases import MysqlConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.verify.canonical import Column
from headrace.verify.comparison import DIGITS, Digest, Grid, Place, Row, RowHash, SourceTable, check_hashes
from headrace.verify.mysql import canonical

# Statements are built from quoted names of the catalog and from numbers, nothing else.
# ruff: noqa: S608


class MysqlSide:
    """A table of MariaDB or MySQL as a side of a comparison."""

    def __init__(
        self,
        query: Callable[[str, str], list[tuple[Any, ...]]],
        table: SourceTable,
        columns: list[Column],
        key: list[Column],
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> None:
        self._query, self._table = query, table
        self._columns, self._key = columns, key
        self._from = f"{canonical.source_name(table.schema)}.{canonical.source_name(table.name)}"
        self._row_hash = _hash(columns)
        self._key_hash = _hash(key or columns)
        self._lead = canonical.source_name(key[0].name) if key else ""
        self._on_progress = on_progress

    def bounds(self) -> tuple[int, int] | None:
        """Return the least and greatest number of the leading key column; None when it is no integer, or without rows."""
        if not self._key or self._table.columns[self._key[0].name].name not in canonical.INTEGERS:
            return None
        ((least, greatest),) = self._ask(f"SELECT min({self._lead}), max({self._lead}) FROM {self._from}")
        return None if least is None else (int(least), int(greatest))

    def about(self) -> int:
        """Return about how many rows there are, as the server's planner estimates."""
        # Newer releases of MySQL explain as a tree unless they are asked for columns.
        ((_, _, _, _, *rest),) = self._ask(f"EXPLAIN FORMAT = TRADITIONAL SELECT 1 FROM {self._from}")
        # The columns of EXPLAIN differ between servers and releases; rows are the last number.
        return next((int(value) for value in reversed(rest) if str(value).isdigit()), 0)

    def count(self) -> int:
        """Return how many rows there are."""
        ((rows,),) = self._ask(f"SELECT count(*) FROM {self._from}")
        return int(rows)

    def digests(self, grid: Grid, cells: Collection[int] | None = None) -> dict[int, Digest]:
        """Return the digest of each cell of a grid, or of those named; an empty cell is not there."""
        numbers = sorted(cells) if cells is not None else range(grid.cells)
        if grid.span.by == "key":
            return self._by_key(grid, numbers)
        cell = f"(p - {grid.span.low}) div {grid.width}"
        chosen = "" if cells is None else f" AND {cell} IN ({_join(numbers)})"
        # Hashed again for each sum rather than kept: what is kept would grow with the table.
        hashed = f"SELECT {_number(self._key_hash, 1)} AS p, {self._row_hash} AS h FROM {self._from} WHERE {self._within(grid)}"
        sums = self._ask(
            f"SELECT {cell}, {_sums()} FROM ({hashed}) r WHERE {grid.span.condition('p')}{chosen} GROUP BY 1"
        )
        digests = {int(cell): Digest(int(rows), int(first), int(second)) for cell, rows, first, second in sums}
        self._report(digests)
        return digests

    def hashes(self, grid: Grid, cells: Collection[int], most: int) -> list[RowHash]:
        """Return the rows in some cells of a grid, by key hash, `most` at most."""
        hashes = [_hash([column]) for column in self._columns]
        whole = canonical.source_hash(f"concat({', '.join(hashes) or chr(39) * 2})")
        order = ", ".join(("1", *hashes))
        result = self._ask(
            f"SELECT {self._key_hash}, {whole} FROM {self._from} WHERE {self._in(grid, cells)} ORDER BY {order} LIMIT {int(most)}"
        )
        return [RowHash(str(key_hash), str(row_hash)) for key_hash, row_hash in result]

    def rows(self, grid: Grid, cells: Collection[int], key_hashes: Collection[str]) -> list[Row]:
        """Return the rows in some cells of a grid whose keys have these hashes; raise CorruptInput for what is no hash."""
        keys = [canonical.key_text(column) for column in self._key]
        hashes = [_hash([column]) for column in self._columns]
        listed = ", ".join([self._key_hash, *keys, *hashes])
        literals = ", ".join(f"'{key_hash}'" for key_hash in check_hashes(key_hashes))
        result = self._ask(
            f"SELECT {listed} FROM {self._from} WHERE {self._in(grid, cells)} AND {self._key_hash} IN ({literals})"
        )
        return [
            Row(
                key_hash=str(key_hash),
                key=tuple(None if value is None else str(value) for value in rest[: len(keys)]),
                columns=tuple(rest[len(keys) :]),
            )
            for key_hash, *rest in result
        ]

    def _in(self, grid: Grid, cells: Collection[int]) -> str:
        """Return the condition that a row is in some cells."""
        place = self._lead if grid.span.by == "key" else _number(self._key_hash, 1)
        chosen = " OR ".join(grid.cell(cell).condition(place) for cell in cells)
        return f"{self._within(grid)} AND ({chosen})"

    def _by_key(self, grid: Grid, cells: Sequence[int]) -> dict[int, Digest]:
        digests = {}
        for cell in cells:
            where = f"{self._within(grid)} AND {grid.cell(cell).condition(self._lead)}"
            # The limit keeps the server from hashing a row again for each sum; a range's hashes are few.
            hashed = f"SELECT {self._row_hash} AS h FROM {self._from} WHERE {where} LIMIT {1 << 63}"
            ((rows, first, second),) = self._ask(f"SELECT {_sums()} FROM ({hashed}) r")
            if rows:
                digests[cell] = Digest(int(rows), int(first), int(second))
                self._report({cell: digests[cell]})
        return digests

    def _within(self, grid: Grid) -> str:
        return " AND ".join(span.condition(self._lead) for span in grid.within) or "true"

    def _report(self, digests: dict[int, Digest]) -> None:
        if self._on_progress:
            self._on_progress(sum(digest.rows for digest in digests.values()))

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        return self._query(statement, str(self._table))


def _hash(columns: list[Column]) -> str:
    return canonical.source_hash(canonical.source_row(columns))


def _number(hashed: str, start: int) -> str:
    """Return the number that some digits of a hash make: 60 bits, which fit with a sign."""
    return f"cast(conv(substr({hashed}, {start}, {DIGITS}), 16, 10) as signed)"


def _sums() -> str:
    # The sum of whole numbers is a decimal, which is large enough for all rows.
    return "count(*), " + ", ".join(f"coalesce(sum({_number('h', start)}), 0)" for start in (1, 1 + DIGITS))


def _join(numbers: Collection[int]) -> str:
    return ", ".join(map(str, numbers))


#: The server's numbers of an answer, as opposed to those of a client that got none.
_REFUSED = {1044, 1045, 1049, 1129, 1130, 1698, 3118, 3159}
_MAY_NOT = {1142, 1143, 1227, 1044, 1370}
_LOST = {0, 1053, 1927, 2003, 2006, 2013, 2014, 2055, 4031}
#: What is read under the lock that no writer passes, by which its failures are known.
LOCK = "its place in the binlog, under a lock"
_CHANGED, _WAITED = {1412, 1146, 1054}, {1205, 3024, 1969}


def refused(source: str, address: MysqlConnection, settings: str, number: int, message: str) -> ReplicationError:
    """Return why no connection could be made; `settings` names the file."""
    if number in _REFUSED:
        return NeedsOperator(
            f"source {source}: {address} refuses user {address.user!r}: {message.strip().splitlines()[0]}",
            hint=f"Check user, password and sslmode of the source in {settings}.",
        )
    return NotConnected(
        f"source {source}: {address} cannot be reached",
        hint=f"Check that the server runs, and host and port of the source in {settings}.",
    )


def no_binlog(source: str, address: MysqlConnection) -> NeedsOperator:
    """Return the error of a server that does not report the place of a snapshot in its log."""
    return NeedsOperator(
        f"source {source}: {address} writes no binlog",
        hint="Name the server that is captured. Or let writers rest, load, and compare with --at-rest.",
    )


def reading(source: str, address: MysqlConnection, about: str, number: int) -> ReplicationError:
    """Return why something could not be read; `number` is the server's, or the client's where no answer came."""
    if number in _MAY_NOT and about == LOCK:
        return Retryable(
            f"source {source}: at {address} there was no moment between two commits, and user {address.user!r} may not lock it",
            hint=f"Verify again when less is written; or run there, if you may: GRANT RELOAD ON *.* TO {address.user}; or let "
            "writers rest, load, and compare with --at-rest.",
        )
    if number in _MAY_NOT:
        return NeedsOperator(
            f"source {source}: user {address.user!r} may not read {about}",
            hint=f"Run there: GRANT SELECT, REPLICATION CLIENT ON *.* TO {address.user};",
        )
    if number in _LOST:
        return NotConnected(
            f"source {source}: the connection to {address} was lost while reading {about}",
            hint="Verify again when the server is back; nothing was changed.",
        )
    if number in _CHANGED:
        return Retryable(
            f"source {source}: {about} was altered while it was compared", hint="Verify again: a snapshot sees no DDL."
        )
    if number in _WAITED:
        return Retryable(
            f"source {source}: reading {about} took longer than {address} allows",
            hint="Verify again when its long statements have ended. Where one table needs longer, raise "
            "verify_statement_seconds in the edge's file, or max_statement_time for the user.",
        )
    return NeedsOperator(
        f"source {source}: {about} cannot be read: error {number}",
        hint=f"Look the number up in the server's manual, and see the log of {address}.",
    )


Ask = Callable[[str], list[tuple[Any, ...]]]

#: From here on positions of a file's transactions are counted.
_COUNTED = 0xFFFF0000
#: Events that are looked at, at a time and in all. The server lets nobody commit while it lists a page of them, and what is so
#: much is not idle.
_PAGE, _MOST = 500, 2000
_NUMBERED = re.compile(r"(.*)\.(\d+)")
_TABLE = re.compile(r"table_id: \d+ \((.*)\)", re.DOTALL)
#: Events that begin a transaction.
_BEGINS = {"Gtid", "Anonymous_Gtid", "Gtid_tagged_log_event"}
#: Events that change no row: of the log itself, of transactions, and optional ones next to row events.
_HARMLESS = {
    "Format_desc", "Rotate", "Stop", "Previous_gtids", "Gtid_list", "Binlog_checkpoint", *_BEGINS,
    "Annotate_rows", "Rows_query", "Xid", "Start_encryption",
}  # fmt: skip
#: DDL of which the edge may make records.
_EMPTIES = re.compile(r"\b(truncate|drop|replace|rename)\b", re.IGNORECASE)


def binlog_place(file: str, offset: int) -> Place:
    """Return the place of a snapshot; raise Retryable where positions are no offsets any more."""
    if offset >= _COUNTED:
        raise Retryable(
            f"the binlog's file {file} is so large, {offset} bytes, that its transactions have no places of their own",
            hint="Verify again when the server has begun the next file; FLUSH BINARY LOGS begins it.",
        )
    return Place(_number_of(file) << 32 | offset, f"{file}:{offset}")


def is_binlog_idle(
    ask: Ask, captured: Callable[[str, str], bool], commit: int, upto: Place, sequences: Collection[str] = frozenset()
) -> bool:
    """Whether no transaction after the one with this commit, up to a place, has changes of tables that are captured.

    Changes of `sequences`, named `database.sequence`, are none.
    What cannot be read, for lack of a privilege or because there is much, counts as a change.
    """
    beyond = False
    for seen, (kind, info) in enumerate(_events(ask, commit, upto)):
        if seen > _MOST:
            return False
        if kind in _BEGINS:
            beyond = True
        if not beyond or kind in _HARMLESS:
            continue
        if kind == "Table_map":
            if _may_be_captured(info, captured, sequences):
                return False
        elif kind == "Query":
            if _EMPTIES.search(info):
                return False
        elif "rows" not in kind.lower():
            return False
    return True


def _may_be_captured(info: str, captured: Callable[[str, str], bool], sequences: Collection[str]) -> bool:
    match = _TABLE.fullmatch(info)
    if match is None:
        return True
    return match[1] not in sequences and any(captured(*names) for names in _names(match[1]))


def _events(ask: Ask, commit: int, upto: Place) -> Iterator[tuple[str, str]]:
    """Yield the events behind a transaction's GTID event up to a place, each with the server's description."""
    first, last = commit >> 32, upto.commit >> 32
    files = [str(row[0]) for row in ask("SHOW BINARY LOGS")]
    between = [file for file in files if first <= _number_of(file) <= last]
    if len(between) != last - first + 1:
        # What was between is purged, or this is another server.
        yield "Unknown", ""
    for file in between:
        at = commit & 0xFFFFFFFF if _number_of(file) == first else 4
        end = upto.commit & 0xFFFFFFFF if _number_of(file) == last else None
        while end is None or at < end:
            page = ask(f"SHOW BINLOG EVENTS IN '{file}' FROM {at} LIMIT {_PAGE}")
            # Where an event ends is not always reported: the next page begins with the last event of this one.
            whole = len(page) < _PAGE
            for _, offset, kind, _, _, info in page if whole else page[:-1]:
                if end is not None and int(offset) >= end:
                    return
                yield str(kind), str(info)
            if whole:
                break
            at = int(page[-1][1])


def _names(table: str) -> list[tuple[str, str]]:
    """Return the databases and tables that `database.table` may mean: either name may hold points."""
    parts = table.split(".")
    return [(".".join(parts[:number]), ".".join(parts[number:])) for number in range(1, len(parts))]


def _number_of(file: str) -> int:
    match = _NUMBERED.fullmatch(file)
    return int(match[2]) if match else 0
