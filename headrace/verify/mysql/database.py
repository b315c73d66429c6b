"""A source's MariaDB or MySQL server, read in one snapshot at one place of its binlog: its tables, and the answers to queries.

All queries see the same moment and cannot write; nothing is written at the source. MariaDB reports the place in the binlog of a
consistent snapshot (`binlog_snapshot_file` and `binlog_snapshot_position`): every transaction whose events are ahead of it is
seen, and no other; so does Percona Server. MySQL does not, so a moment is waited for there in which nothing is being committed;
only where there is none are writers blocked while the snapshot is made. Called by sources.py. The only module here that imports
PyMySQL.
"""

import logging
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any

import pymysql

from headrace.configuration.edge import Mysql
from headrace.configuration.lake import VerifiedMysql
from headrace.errors import NeedsOperator, ReplicationError
from headrace.verify.canonical import Column, SourceType
from headrace.verify.comparison import Forms, Place, Reading, SourceTable
from headrace.verify.mysql import canonical, side
from headrace.verify.mysql.side import MysqlSide
from headrace.waiting import connecting_within, hanging_up

_log = logging.getLogger(__name__)

#: The settings under which values are printed as the edge's records hold them, and a long comparison is not cut off.
_SETTINGS = (
    "SET SESSION time_zone = '+00:00', sql_mode = '', wait_timeout = {idle}, net_write_timeout = 3600, lock_wait_timeout = 60",
    "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
)
_DAY = 86_400
#: How long a statement may take: in seconds at MariaDB, in milliseconds at MySQL.
_LIMITS = "SET SESSION max_statement_time = {seconds}", "SET SESSION max_execution_time = {seconds}000"
#: Seconds for which a moment without commits is waited for, and the global read lock of MySQL for statements that run: new
#: writers wait behind the lock.
_QUIET_SECONDS, _LOCK_SECONDS = 10.0, 5
_PAUSE_SECONDS = 0.002
_BEGIN = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"
_SYSTEM = ("mysql", "sys", "information_schema", "performance_schema")
#: The status variables by which MariaDB and Percona Server report the place of a snapshot, so that no lock is needed.
_REPORTED = "binlog\\_snapshot\\_%"
#: MySQL's new word for `SHOW MASTER STATUS`.
_NEW_WORD = (8, 2)
_TABLES = """
    SELECT t.table_schema, t.table_name, coalesce(e.transactions, 'NO'), coalesce(t.engine, '')
    FROM information_schema.tables AS t LEFT JOIN information_schema.engines AS e ON e.engine = t.engine
    WHERE t.table_type IN ('BASE TABLE', 'SYSTEM VERSIONED') AND t.table_schema {chosen}
    ORDER BY 1, 2
"""
_SEQUENCES = """
    SELECT table_schema, table_name FROM information_schema.tables WHERE table_type = 'SEQUENCE' AND table_schema {chosen}
"""
_COLUMNS = """
    SELECT table_schema, table_name, column_name, data_type, column_type, numeric_precision, numeric_scale, extra,
        coalesce(generation_expression, '') IN ('ROW START', 'ROW END')
    FROM information_schema.columns WHERE table_schema {chosen} ORDER BY table_schema, table_name, ordinal_position
"""
_KEYS = """
    SELECT table_schema, table_name, index_name, column_name, nullable = 'YES' OR sub_part IS NOT NULL OR column_name IS NULL
    FROM information_schema.statistics WHERE non_unique = 0 AND table_schema {chosen}
    ORDER BY table_schema, table_name, index_name <> 'PRIMARY', index_name, seq_in_index
"""


class MysqlDatabase:
    """A server of a source, in the snapshot of one transaction. Not safe for two threads at a time."""

    forms: Forms = canonical

    def __init__(
        self, source: str, address: Mysql | VerifiedMysql, connection: Any, reading: Reading | None = None
    ) -> None:
        #: Every transaction ahead of it is seen, no other; None for a snapshot without a place.
        self.place: Place | None = None
        self._source, self._address, self._connection = source, address, connection
        self.sequences: frozenset[str] = frozenset()
        self._reading = reading or Reading()
        self._is_mariadb = "MariaDB" in connection.get_server_info()

    @classmethod
    @contextmanager
    def connect(
        cls,
        source: str,
        address: Mysql | VerifiedMysql,
        *,
        placed: bool = False,
        reading: Reading | None = None,
    ) -> Iterator["MysqlDatabase"]:
        """Give the server in a snapshot that lasts as long as the context; `placed`, at a place of the binlog.

        Raises NotConnected when the server cannot be reached, NeedsOperator when it refuses the user or has no binlog.
        """
        reading = reading or Reading()
        connection = _connect(source, address, reading.settings)
        try:
            database = cls(source, address, connection, reading)
            for statement in _SETTINGS:
                database._run(statement.format(idle=reading.idle_seconds or _DAY))
            if reading.statement_seconds:
                database._run(_LIMITS[not database._is_mariadb].format(seconds=reading.statement_seconds))
            database._begin(placed=placed)
            yield database
        finally:
            with suppress(pymysql.MySQLError):
                connection.close()

    def tables(self) -> list[SourceTable]:
        """Return the tables that can be captured, by name; the server's own and temporary ones are none."""
        names = self._databases()
        listed = ", ".join(self._literal(name) for name in (names or _SYSTEM))
        chosen = f"{'' if names else 'NOT '}IN ({listed})"
        columns: dict[tuple[str, str], dict[str, SourceType]] = {}
        periods: set[tuple[str, str, str]] = set()
        for schema, table, name, kind, declared, precision, scale, extra, apart in self._catalog(_COLUMNS, chosen):
            # What is computed on reading is not in the log, and row versions' own columns are in no record.
            if apart:
                periods.add((schema, table, name))
            elif "VIRTUAL" not in str(extra).upper():
                columns.setdefault((schema, table), {})[name] = _type(
                    str(kind).lower(), str(declared).lower(), precision, scale
                )
        indexes: dict[tuple[str, str], dict[str, list[tuple[str, bool]]]] = {}
        for schema, table, index, name, loose in self._catalog(_KEYS, chosen):
            # A part that is an expression has no name; it identifies no row.
            if (schema, table, name) not in periods:
                indexes.setdefault((schema, table), {}).setdefault(index, []).append((name, bool(loose)))
        self.sequences = frozenset(f"{schema}.{name}" for schema, name in self._catalog(_SEQUENCES, chosen))
        return [
            SourceTable(
                schema=schema,
                name=table,
                columns=columns.get((schema, table), {}),
                key=_key(indexes.get((schema, table), {})),
                captured=self._is_captured(schema, table),
                unsteady="" if transactions == "YES" else f"is a table of {engine}, which knows no snapshots",
            )
            for schema, table, transactions, engine in self._catalog(_TABLES, chosen)
        ]

    def side(
        self,
        table: SourceTable,
        columns: list[Column],
        key: list[Column],
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> MysqlSide:
        """Return a table as a side of a comparison; `on_progress` receives how many more rows were summed up."""
        return MysqlSide(self.query, table, columns, key, on_progress=on_progress)

    def idle_since(self, commit: int) -> bool:
        """Whether the binlog is known to have no change of a compared table between a transaction and the snapshot's place."""
        if self.place is None:
            return False
        try:
            return side.is_binlog_idle(
                lambda statement: self.query(statement, "the binlog"),
                self._is_captured,
                commit,
                self.place,
                self.sequences,
            )
        except NeedsOperator as error:
            # Where changes come all the time they show the same.
            _log.info("%s", error.message)
            return False

    def keep(self) -> None:
        """Ask for nothing, so that the server does not end the connection as idle."""
        self.query("SELECT 1", "nothing")

    def interrupt(self) -> None:
        """End the statement that another thread runs, if any, and the connection; what runs there fails."""
        with suppress(pymysql.MySQLError, ReplicationError):
            other = _connect(self._source, self._address, self._reading.settings)
            with closing(other), other.cursor() as cursor:
                cursor.execute(f"KILL {int(self._connection.thread_id())}")

    def query(self, statement: str, about: str) -> list[tuple[Any, ...]]:
        """Return a statement's rows; an error names the statement's purpose, never a row's values."""
        try:
            with hanging_up(self._reading.answer_seconds, self._descriptor), self._connection.cursor() as cursor:
                cursor.execute(statement)
                return list(cursor.fetchall())
        except pymysql.MySQLError as error:
            raise side.reading(self._source, self._address, about, _number(error)) from error

    def _descriptor(self) -> int:
        return int(self._connection._sock.fileno())  # noqa: SLF001 - the driver gives its socket no other way.

    def _begin(self, *, placed: bool) -> None:
        if not placed:
            self._run(_BEGIN)
            return
        self._run(_BEGIN)
        status = dict(self.query(f"SHOW STATUS LIKE '{_REPORTED}'", "its place in the binlog"))
        names = {str(name).lower(): value for name, value in status.items()}
        end = names.get("binlog_snapshot_file"), names.get("binlog_snapshot_position")
        if not status:
            self._run("ROLLBACK")
            end = self._begin_between() or self._begin_locked()
        file, offset = end
        if not file:
            raise side.no_binlog(self._source, self._address)
        self.place = side.binlog_place(str(file), int(offset or 0))

    def _begin_between(self) -> tuple[str, int] | None:
        """Begin between two commits, and return the log's end there; None where that does not come about in time.

        A transaction owns its GTID from before it is in the log until it is visible. So where nothing is owned after the log's
        end was read, all ahead of that end is visible; and where the log ends there still after the snapshot, nothing else is.
        """
        # A transaction without a GTID owns none, and MariaDB has no such setting.
        if self.query("SHOW GLOBAL VARIABLES LIKE 'gtid_mode'", "its GTIDs") != [("gtid_mode", "ON")]:
            return None
        until = time.monotonic() + _QUIET_SECONDS
        while time.monotonic() < until:
            end = self._log_end()
            if self.query("SELECT @@GLOBAL.gtid_owned", "its GTIDs") == [("",)]:
                self._run(_BEGIN)
                if self._log_end() == end:
                    return end
                self._run("ROLLBACK")
            # Each look holds the log for an instant.
            time.sleep(_PAUSE_SECONDS)
        return None

    def _begin_locked(self) -> tuple[str, int]:
        """Begin while nobody can commit, and return the log's end there."""
        self._run(f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
        self.query("FLUSH TABLES WITH READ LOCK", side.LOCK)
        self._run(_BEGIN)
        end = self._log_end()
        # It ends no transaction.
        self._run("UNLOCK TABLES")
        self._run("SET SESSION lock_wait_timeout = 60")
        return end

    def _log_end(self) -> tuple[str, int]:
        """Return the newest file of the binlog and where it ends; raise NeedsOperator where there is none."""
        release = tuple(int(part) for part in self._connection.get_server_info().split("-")[0].split(".")[:2])
        word = "BINARY LOG" if release >= _NEW_WORD else "MASTER"
        rows = self.query(f"SHOW {word} STATUS", "its place in the binlog")
        if not rows:
            raise side.no_binlog(self._source, self._address)
        return str(rows[0][0]), int(rows[0][1])

    def _is_captured(self, database: str, table: str) -> bool:
        """Return whether a table is captured, as far as that is known: an edge's file may name tables, the lake's does not."""
        if tables := self._tables():
            return f"{database}.{table}" in tables
        names = self._address.databases
        return database in names if names else database not in _SYSTEM

    def _databases(self) -> list[str]:
        """Return the databases that are captured; none for all but the server's own."""
        tables = self._tables()
        return sorted({name.partition(".")[0] for name in tables}) if tables else self._address.databases

    def _tables(self) -> list[str]:
        return self._address.tables if isinstance(self._address, Mysql) else []

    def _catalog(self, statement: str, chosen: str) -> list[tuple[Any, ...]]:
        return self.query(statement.format(chosen=chosen), "the catalog")

    def _run(self, statement: str) -> None:
        self.query(statement, "a consistent snapshot")

    def _literal(self, text: str) -> str:
        return str(self._connection.escape(text))


def _connect(source: str, address: Mysql | VerifiedMysql, settings: str) -> Any:
    try:
        connection = pymysql.connect(
            **address.parameters(),
            charset="utf8mb4",
            autocommit=True,
            program_name="headrace verify",
            defer_connect=True,
        )
        with connecting_within(address.connect_timeout, address.host, address.port) as handshake:
            connection.connect(handshake)
    except pymysql.MySQLError as error:
        words = str(error.args[1]) if len(error.args) > 1 else str(error)
        raise side.refused(source, address, settings, _number(error), words) from error
    except OSError as error:
        raise side.refused(source, address, settings, 0, str(error)) from error
    # A server that is gone without a word is noticed.
    raw = connection._sock  # noqa: SLF001 - the driver gives its socket no other way.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return connection


def _number(error: pymysql.MySQLError) -> int:
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def _key(indexes: dict[str, list[tuple[str, bool]]]) -> tuple[str, ...]:
    """Return the columns by which a row is known: of the primary key, else of a unique index over whole columns without null."""
    for name, columns in indexes.items():
        if name == "PRIMARY" or not any(loose for _, loose in columns):
            return tuple(column for column, _ in columns)
    return ()


def _type(kind: str, declared: str, precision: int | None, scale: int | None) -> SourceType:
    if "unsigned" in declared and kind.endswith("int"):
        kind = f"{kind} unsigned"
    return SourceType(
        name=kind, scale=scale if kind == "decimal" else None, bits=int(precision or 0) if kind == "bit" else 0
    )
