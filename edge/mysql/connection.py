"""PyMySQL, the driver of MariaDB and MySQL, and ordinary connections: the one module of the edge that imports PyMySQL.

Guarantees that every failure is NotConnected (try again) or NeedsOperator (with what fixes it). A connection serves one thread.
"""

import contextlib
import re
import socket
from collections.abc import Iterator
from itertools import takewhile
from typing import Any

import pymysql
from pymysql import Error, MySQLError
from pymysql.cursors import DictCursor

from edge.mysql.errors import connecting, running, statement_failed
from edge.snapshot import ports
from headrace.configuration.edge import Mysql
from headrace.errors import NotConnected, ReplicationError
from headrace.waiting import connecting_within, hanging_up

__all__ = ["DictCursor", "Error", "MySQLError", "connect", "number_and_text"]


def connect(config: Mysql, source: str) -> Any:
    """Return a new connection, on which each statement commits by itself."""
    try:
        connection = pymysql.connect(
            **config.parameters(),
            read_timeout=60,
            write_timeout=60,
            charset="utf8mb4",
            autocommit=True,
            init_command="set time_zone = '+00:00'",
            program_name=f"headrace {source}",
            defer_connect=True,
        )
        # The driver's limits are for each read: a server that sends a byte now and then would keep its client for ever.
        with connecting_within(config.connect_timeout, config.host, config.port) as handshake:
            connection.connect(handshake)
    except MySQLError as error:
        raise connecting(*number_and_text(error), str(config), config.user) from error
    except OSError as error:
        raise NotConnected(f"server {config} cannot be reached: {error}") from error
    raw = connection._sock  # noqa: SLF001 - the driver has no public name for its socket.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        raw.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


def number_and_text(error: MySQLError) -> tuple[int, str]:
    """Return an error's number and its words; 0 where it has none."""
    number, *words = error.args or (0, "")
    return (number, str(words[0]) if words else "") if isinstance(number, int) else (0, str(number))


#: How long an answer may take to arrive, in seconds; a read of it has `read_timeout`.
_ANSWER_SECONDS = 120.0


class Database(ports.Database):
    """An ordinary connection, for queries and for `init`."""

    def __init__(self, config: Mysql, source: str) -> None:
        self._address, self._user = str(config), config.user
        self._connection = connect(config, source)
        self.version: str = str(self._connection.get_server_info())
        self.is_mariadb = "MariaDB" in self.version
        #: Its numbers, `(8, 0, 36)`.
        self.release = tuple(int(part) for part in re.findall(r"\d+", self.version)[:3])
        #: The server's number for this connection.
        self.pid = int(self._connection.thread_id())

    def rows(self, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """Run a statement and return its rows, none for a statement without a result."""
        with self._translate(), self._bounded(), self._connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            return list(cursor.fetchall())

    def dictionaries(self, query: str) -> list[dict[str, Any]]:
        """Run a statement and return its rows by the names of their columns."""
        with self._translate(), self._bounded(), self._connection.cursor(DictCursor) as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def variable(self, name: str) -> str | None:
        """Return a global variable, None when the server has none of that name."""
        rows = self.rows("show global variables like %s", name)
        return str(rows[0][1]) if rows else None

    def close(self) -> None:
        """Close the connection."""
        with contextlib.suppress(Error, OSError):
            self._connection.close()

    def _problem(self, number: int, words: str) -> ReplicationError:
        return running(number, words, self._address, self._user)

    def _bounded(self, seconds: float | None = None) -> contextlib.AbstractContextManager[None]:
        """End the connection where an answer does not come in time."""
        return hanging_up(seconds or _ANSWER_SECONDS, lambda: int(self._connection._sock.fileno()))  # noqa: SLF001 - as above.

    @contextlib.contextmanager
    def _translate(self) -> Iterator[None]:
        try:
            yield
        except MySQLError as error:
            raise self._problem(*number_and_text(error)) from error
        except OSError as error:
            raise NotConnected(f"the connection to {self._address} was lost: {error}") from error


_QUERY = 0x03
_END, _FULL_PACKET = 0xFE, 0xFFFFFF
#: An answer that does not go on for so long, in seconds, does not come.
_SILENCE_SECONDS = 660.0
#: Values keep the character set of their column. A chunk that waits for a lock is given up, and so is one that takes too long.
_SETTINGS = (
    "set session transaction isolation level repeatable read",
    "set session character_set_results = null, sql_mode = '', lock_wait_timeout = 10",
)
_LONGEST = {True: "set session max_statement_time = 600", False: "set session max_execution_time = 600000"}


class SnapshotConnection(Database):
    """A connection for chunks."""

    def __init__(self, config: Mysql, source: str) -> None:
        super().__init__(config, source)
        for setting in (*_SETTINGS, _LONGEST[self.is_mariadb]):
            self.rows(setting)

    def selected(self, statement: str, limit_bytes: int) -> tuple[list[bytes], int, bool]:
        """Run a select; return its row packets, their size, and whether those are all.

        Where they grow beyond the limit the rest is left to come: the connection is of no more use then.
        """
        connection = self._connection
        with self._translate():
            connection._execute_command(_QUERY, statement)  # noqa: SLF001 - the driver's own answer decodes every value.
            connection._sock.settimeout(_SILENCE_SECONDS)  # noqa: SLF001 - as above.
        with self._bounded(_SILENCE_SECONDS):
            return self._rows(limit_bytes)

    def _rows(self, limit_bytes: int) -> tuple[list[bytes], int, bool]:
        packets = self._packets()
        rows: list[bytes] = []
        size = 0
        # Columns are described up to the first end.
        for packet in packets:
            if _ends(packet):
                break
        for packet in packets:
            if _ends(packet):
                return rows, size, True
            rows.append(packet)
            size += len(packet)
            if size > limit_bytes:
                break
        return rows, size, False

    def selected_on(self, statement: str) -> Iterator[bytes]:
        """Run a select, and return its row packets as they are taken: the server waits for that. Raises as `rows` does."""
        connection = self._connection
        with self._translate():
            connection._execute_command(_QUERY, statement)  # noqa: SLF001 - as in `selected`.
            connection._sock.settimeout(_SILENCE_SECONDS)  # noqa: SLF001 - as above.
        packets = self._packets()
        # Columns are described up to the first end; an error of the statement is there in place of it.
        for packet in packets:
            if _ends(packet):
                break
        return takewhile(lambda packet: not _ends(packet), packets)

    def abandon(self) -> None:
        """Close the socket without sending COM_QUIT."""
        with contextlib.suppress(OSError):
            self._connection._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001 - the driver would read what is to come.
        self._connection._force_close()  # noqa: SLF001 - as above.

    def _packets(self) -> Iterator[bytes]:
        """Yield packets, Int24 length, Int8 number and the body; raise the error that the server sends in place of one."""
        read: Any = self._connection._rfile.read  # noqa: SLF001 - the driver has no public name for its file.
        while True:
            body, full = b"", True
            while full:
                try:
                    head = read(4)
                    length = int.from_bytes(head[:3], "little")
                    more = read(length)
                except OSError as error:
                    raise NotConnected(f"the connection to {self._address} was lost: {error}") from error
                if len(head) < 4 or len(more) < length:
                    raise NotConnected(f"the connection to {self._address} was lost: the server closed it")
                full = length == _FULL_PACKET
                body = body + more if body else more
            if body[:1] == b"\xff":
                # Int8 0xFF, Int16 number, `#` and Byte5 state, the words.
                raise self._problem(int.from_bytes(body[1:3], "little"), body[9:].decode(errors="replace"))
            yield body

    def _problem(self, number: int, words: str) -> ReplicationError:
        return statement_failed(number, words, self._address)


def _ends(packet: bytes) -> bool:
    """Int8 0xFE, Int16 warnings, Int16 status; a row that begins like that has a column of 16 MiB."""
    return len(packet) < 9 and packet[0] == _END
