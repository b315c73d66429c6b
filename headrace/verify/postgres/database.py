"""A source's PostgreSQL database, read in one snapshot at one place of its log: its tables, and the answers to queries.

All queries of a connection see the same moment (repeatable read) and cannot write. The moment is the one at which a temporary
slot becomes consistent: it sees every transaction whose commit record is below that LSN, and none at or above it. The slot is
dropped as soon as the snapshot is taken over, so no log is retained while tables are read; a marker in the log is all that is
written. Called by sources.py. The only module here that imports psycopg.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from typing import Any, NamedTuple
from uuid import uuid4

import psycopg
from psycopg import IsolationLevel, sql
from psycopg.rows import tuple_row

from headrace.configuration.databases import PostgresqlConnection
from headrace.configuration.edge import Postgresql
from headrace.verify import canonical
from headrace.verify.canonical import Column, SourceType
from headrace.verify.comparison import Forms, Place, Reading, SourceTable
from headrace.verify.postgres import side
from headrace.verify.postgres.side import PostgresSide
from headrace.waiting import hanging_up

_log = logging.getLogger(__name__)

#: The settings under which the edge reads values, so that the server prints them the same way.
_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    # The log hides no rows: a table whose row security would hide some from this user is refused.
    "row_security": "off",
    # Functions and operators are the server's own: whoever has tables may have made others that fit the rows' types better.
    "search_path": "pg_catalog",
}
#: Prefix of logical messages that every edge makes a record of.
_MARKER = "headrace.marker"
#: A slot waits for the transactions that are open when it is made, so long at most.
_SLOT_TIMEOUT = "60s"
_TABLES = files("headrace.verify.postgres").joinpath("tables.sql").read_text(encoding="utf-8")


class _Exported(NamedTuple):
    #: Commits below it are in the snapshot.
    place: Place
    snapshot: str


class SourceDatabase:
    """A database of a source, in the snapshot of one transaction. Not safe for two threads at a time."""

    forms: Forms = canonical
    #: PostgreSQL's log has none.
    sequences: frozenset[str] = frozenset()

    def __init__(
        self,
        source: str,
        address: PostgresqlConnection,
        connection: psycopg.Connection[Any],
        place: Place | None,
        reading: Reading,
    ) -> None:
        #: Every transaction that committed below it is seen, no other; None for a snapshot without a place.
        self.place = place
        self._source = source
        self._address = address
        self._connection = connection
        self._reading = reading
        #: The edge's own, whose tables alone are read.
        self._publication = address.publication if isinstance(address, Postgresql) else None
        #: Conditions of the publication by table: other rows do not leave the server.
        self._filters: dict[str, str] = {}

    @classmethod
    @contextmanager
    def connect(
        cls, source: str, address: PostgresqlConnection, *, placed: bool = False, reading: Reading | None = None
    ) -> Iterator["SourceDatabase"]:
        """Give the database in a snapshot that lasts as long as the context; `placed`, at an LSN that is known.

        Raises NotConnected when the server cannot be reached, NeedsOperator when it refuses the user, or to make a slot.
        """
        reading = reading or Reading()
        limits = {
            "statement_timeout": reading.statement_seconds,
            "idle_in_transaction_session_timeout": reading.idle_seconds,
        }
        # Else those of the user or the server hold.
        settings = _SETTINGS | {name: f"{seconds}s" for name, seconds in limits.items() if seconds}
        options = " ".join(f"-c {name}={value}" for name, value in settings.items())
        connection = _connect(source, address, reading.settings, options)
        try:
            connection.isolation_level, connection.read_only = IsolationLevel.REPEATABLE_READ, True
            if not placed:
                yield cls(source, address, connection, None, reading)
                return
            with _export_snapshot(source, address, reading.settings) as exported, connection.cursor() as cursor:
                cursor.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(exported.snapshot))
            _mark(source, address, reading.settings)
            yield cls(source, address, connection, exported.place, reading)
        finally:
            connection.close()

    def tables(self) -> list[SourceTable]:
        """Return the tables that can be captured, by name; system tables, unlogged and temporary ones are none.

        Where the publication is known, columns and rows that it leaves out are not read.
        """
        listed = []
        parameters = {"publication": self._publication}
        for schema, name, partitioned, above, columns, key, captured, published, condition in self.query(
            _TABLES, "the catalog", parameters
        ):
            kinds = {column: _type(kind, modifier) for column, kind, modifier in columns}
            table = SourceTable(
                schema=schema,
                name=name,
                partitioned=partitioned,
                partition_of=frozenset(above),
                columns={column: kind for column, kind in kinds.items() if published is None or column in published},
                key=tuple(key),
                treated={
                    column: "not published" for column in kinds if published is not None and column not in published
                },
                captured=captured,
            )
            if condition is not None:
                self._filters[str(table)] = condition
            listed.append(table)
        return listed

    def side(
        self,
        table: SourceTable,
        columns: list[Column],
        key: list[Column],
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> PostgresSide:
        """Return a table as a side of a comparison; `on_progress` receives how many more rows were summed up."""
        only = self._filters.get(str(table), "")
        return PostgresSide(self.query, table, columns, key, only=only, on_progress=on_progress)

    def idle_since(self, commit: int) -> bool:  # noqa: ARG002 - as every engine.
        """Return False: the marker shows it."""
        return False

    def keep(self) -> None:
        """Ask for nothing, so that the server does not end the transaction as idle."""
        self.query("SELECT 1", "nothing")

    def interrupt(self) -> None:
        """End the statement that another thread runs, if any; it fails there."""
        with suppress(psycopg.Error):
            self._connection.cancel_safe(timeout=5.0)

    def query(
        self, statement: str, about: str | SourceTable, parameters: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        """Return a statement's rows; an error names the statement's purpose, never a row's values."""
        try:
            with hanging_up(self._reading.answer_seconds, self._descriptor), self._connection.cursor() as cursor:
                # A statement that fails is undone alone: the snapshot goes on.
                cursor.execute("SAVEPOINT query")
                try:
                    cursor.execute(statement, parameters)
                    rows: list[tuple[Any, ...]] = cursor.fetchall()
                finally:
                    if not self._connection.closed:
                        cursor.execute("ROLLBACK TO SAVEPOINT query; RELEASE SAVEPOINT query")
                return rows
        except psycopg.Error as error:
            lost = self._connection.closed or error.sqlstate is None
            raise side.reading(self._source, self._address, about, None if lost else error.sqlstate) from error

    def _descriptor(self) -> int:
        return self._connection.pgconn.socket


def _connect(
    source: str, address: PostgresqlConnection, settings: str, options: str, **more: Any
) -> psycopg.Connection[Any]:
    try:
        return psycopg.connect(
            **address.parameters(),  # type: ignore[arg-type]
            **more,
            application_name="headrace verify",
            client_encoding="UTF8",
            options=options,
            row_factory=tuple_row,
            # Each statement is another one.
            prepare_threshold=None,
        )
    except psycopg.OperationalError as error:
        raise side.refused(source, address, settings, str(error)) from error


@contextmanager
def _export_snapshot(source: str, address: PostgresqlConnection, settings: str) -> Iterator[_Exported]:
    """Give a snapshot and where in the log it sits; both are gone with the context, unless a transaction took the snapshot."""
    connection = _connect(
        source, address, settings, f"-c lock_timeout={_SLOT_TIMEOUT}", replication="database", autocommit=True
    )
    try:
        # The form that every server since PostgreSQL 10 reads.
        name = f"headrace_verify_{uuid4().hex[:12]}"
        created = connection.execute(f'CREATE_REPLICATION_SLOT "{name}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT')
        _, consistent_point, snapshot, _ = created.fetchall()[0]
        high, _, low = consistent_point.partition("/")
        yield _Exported(Place(int(high, 16) << 32 | int(low, 16), f"LSN {consistent_point}"), snapshot)
    except psycopg.Error as error:
        raise side.no_slot(source, address, error.sqlstate, _SLOT_TIMEOUT) from error
    finally:
        connection.close()


def _type(name: str, modifier: int) -> SourceType:
    if name != "numeric" or modifier < 0:
        return SourceType(name=name)
    # The scale is the low 11 bits of the modifier (less 4), as a number with a sign.
    return SourceType(name=name, scale=(((modifier - 4) & 0x7FF) ^ 1024) - 1024)


def _mark(source: str, address: PostgresqlConnection, settings: str) -> None:
    """Write a marker to the log, which the edge makes a record: when it has come, so has all that was committed before it."""
    # It need not wait for a standby, which may be away for long.
    connection = _connect(source, address, settings, "-c synchronous_commit=local", autocommit=True)
    try:
        connection.execute("SELECT pg_logical_emit_message(true, %s, 'verify')", (_MARKER,))
    except psycopg.Error as error:
        # Where changes come all the time they show the same.
        _log.info("source %s: no marker is written: PostgreSQL error %s", source, error.sqlstate)
    finally:
        connection.close()
