"""psycopg 3, PostgreSQL's driver, and an ordinary connection: the one module of the edge that imports psycopg.

Guarantees the session settings that the decoder assumes, and that every failure is NotConnected (try again) or NeedsOperator
(with what fixes it). A connection serves one thread.
"""

import select
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import psycopg
from psycopg import Error, pq
from psycopg.errors import Diagnostic
from psycopg.rows import tuple_row

from edge.postgres.errors import connecting, running, statement_failed
from edge.snapshot import ports
from headrace.configuration.edge import Postgresql
from headrace.errors import NotConnected, ReplicationError
from headrace.waiting import hanging_up

__all__ = ["Diagnostic", "Error", "connect", "pq", "text"]

_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}
#: Of an ordinary connection, which is idle for as long as nothing has to be looked up.
_ORDINARY = {"statement_timeout": "60s", "idle_session_timeout": "0"}
#: How long an answer, and the rows of a chunk, may take to arrive, in seconds: the server itself ends a statement after 60, and a
#: chunk after ten minutes. One that sends a byte now and then would keep the edge for ever.
_ANSWER_SECONDS, _ROWS_SECONDS = 120.0, 900.0
#: A peer that vanished without closing its connection is noticed within about 25 s.
_KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def connect(config: Postgresql, source: str, **more: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a new connection, on which each statement commits by itself."""
    settings = _SETTINGS if more else _SETTINGS | _ORDINARY
    try:
        return psycopg.connect(
            **config.parameters(),  # type: ignore[arg-type]
            **_KEEPALIVES,  # type: ignore[arg-type]
            **more,
            application_name=f"headrace {source}",
            client_encoding="UTF8",
            options=" ".join(f"-c {name}={value}" for name, value in settings.items()),
            autocommit=True,
            row_factory=tuple_row,
        )
    except Error as error:
        raise connecting(str(error), str(config), config.user, config.database) from error


def text(value: bytes | None) -> str:
    """Return a field of an answer as text, nothing for one that is not there."""
    return "" if value is None else value.decode()


#: Queries of the catalog mean the server's own functions and operators: in the role's own path anybody may have made some that
#: fit the types better, and those would run with its rights. The role's own path is for statements over rows, whose conditions
#: are the operator's, and for those that make or alter something, since event triggers of the database run within them.
_SERVERS_PATH, _OWN_PATH = "set search_path = pg_catalog", "reset search_path"
#: A statement was cancelled on request.
_CANCELLED = "57014"


class Database(ports.Database):
    """An ordinary connection, for queries and for `init`."""

    def __init__(self, config: Postgresql, source: str) -> None:
        self._address = str(config)
        self._user = config.user
        self._connection = connect(config, source)
        self._is_patient = False
        with self._translated(), self._bounded():
            self._connection.execute(_SERVERS_PATH)
        self.version = self._connection.info.server_version

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, none for a statement without a result."""
        with self._translated(), self._bounded():
            cursor = self._connection.execute(query, parameters or None)
            return cursor.fetchall() if cursor.description else []

    def wait_for_all(self) -> None:
        """Have statements take any time from now on: a command waits for what others, or a whole log, take."""
        self.rows("set statement_timeout = 0")
        self._is_patient = True

    def alter(self, statement: str) -> None:
        """Run a statement that makes, alters or drops something, all names with their schemas, or commits that."""
        with self._translated(), self._bounded(), self._own_path():
            self._connection.execute(statement)

    def checked_rows(self, query: str) -> list[tuple[Any, ...]]:
        """Run a query that an operator's own condition is part of, which may be wrong: then raise NeedsOperator."""
        try:
            with self._bounded(), self._own_path():
                return self._connection.execute(query).fetchall()
        except Error as error:
            raise self._described(statement_failed, error) from error

    def copied(self, statement: str, limit_bytes: int) -> tuple[list[bytes], int, bool]:
        """Run a COPY to stdout; return its rows without line feeds, their size, and whether those are all.

        It is cancelled when the rows grow beyond the limit. An error that lies in the statement is NeedsOperator.
        """
        raw = self._connection.pgconn
        rows: list[bytes] = []
        size, cancelled, until = 0, False, time.monotonic() + _ROWS_SECONDS
        with self._translated(), self._own_path():
            raw.send_query(statement.encode())
            result = self._result(until)
            if result is not None and result.status == pq.ExecStatus.COPY_OUT:
                get, add = raw.get_copy_data, rows.append
                while (read := get(1))[0] >= 0:
                    length, row = read
                    if length == 0:
                        self._wait(until)
                    elif not cancelled:
                        add(bytes(row[:-1]))
                        size += length
                        if size > limit_bytes:
                            raw.get_cancel().cancel()
                            cancelled = True
                result = self._result(until)
            while self._result(until) is not None:
                pass
        if result is None or result.status != pq.ExecStatus.COMMAND_OK:
            state = text(result.error_field(pq.DiagnosticField.SQLSTATE)) if result is not None else ""
            if not (cancelled and state == _CANCELLED):
                words = result.get_error_message() if result is not None else "the server ended the connection"
                context = text(result.error_field(pq.DiagnosticField.CONTEXT)) if result is not None else ""
                raise statement_failed(state or None, words, self._address, self._user, context=context)
        return rows, size, not cancelled

    def value_within(self, seconds: float, query: str) -> str:
        """Run a query and return its only value as text.

        Raises NotConnected when there is no answer within `seconds`: the connection is then of no more use.
        """
        raw, until = self._connection.pgconn, time.monotonic() + seconds
        with self._translated():
            raw.send_query(query.encode())
            result = self._result(until)
            while self._result(until) is not None:
                pass
        if result is None or result.status != pq.ExecStatus.TUPLES_OK:
            words = result.get_error_message() if result is not None else "the server ended the connection"
            raise running(None, words, self._address, self._user)
        return text(result.get_value(0, 0))

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _result(self, until: float) -> pq.abc.PGresult | None:
        raw = self._connection.pgconn
        while raw.is_busy():
            self._wait(until)
        return raw.get_result()

    def _wait(self, until: float) -> None:
        """Wait for more of an answer, until a time of the monotonic clock; other threads run meanwhile."""
        # `select` takes no descriptor beyond 1,023.
        poll = select.poll()
        poll.register(self._connection.pgconn.socket, select.POLLIN)
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            raise NotConnected(f"database {self._address} did not answer in time")
        self._connection.pgconn.consume_input()

    def _bounded(self) -> AbstractContextManager[None]:
        """End the connection where an answer does not come in time."""
        if self._is_patient:
            return nullcontext()
        return hanging_up(_ANSWER_SECONDS, lambda: self._connection.pgconn.socket)

    @contextmanager
    def _own_path(self) -> Iterator[None]:
        """Have names mean what they do to the role, or in its database."""
        self._connection.execute(_OWN_PATH)
        try:
            yield
        finally:
            # A transaction that failed takes it back by itself, when it ends.
            if self._connection.info.transaction_status in {pq.TransactionStatus.IDLE, pq.TransactionStatus.INTRANS}:
                self._connection.execute(_SERVERS_PATH)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Error as error:
            raise self._described(running, error) from error

    def _described(self, describe: Callable[..., ReplicationError], error: Error) -> ReplicationError:
        context = error.diag.context
        return describe(error.sqlstate, str(error), self._address, self._user, context=context)
