"""A connection that reads rows as the server sends them: packets of the text protocol, not a value decoded.

The driver sends the statement; the answer is framed here. Texts come in the character sets of their columns. Every failure is
NotConnected, Retryable, or NeedsOperator for the statement.
"""

import contextlib
import socket
from collections.abc import Iterator
from typing import Any

from edge.mysql.connection import Database
from edge.mysql.errors import asking
from headrace.configuration.edge import Mysql
from headrace.errors import NotConnected, ReplicationError

_QUERY = 0x03
_END, _FULL_PACKET = 0xFE, 0xFFFFFF
#: An answer that does not go on for so long, in seconds, does not come.
_SILENCE_SECONDS = 660.0
#: Values keep the character set of their column. A chunk that waits for a lock gives way, and so does one that takes too long.
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
        with self._translated():
            connection._execute_command(_QUERY, statement)  # noqa: SLF001 - the driver's own answer decodes every value.
            connection._sock.settimeout(_SILENCE_SECONDS)  # noqa: SLF001 - as above.
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

    def abandon(self) -> None:
        """Close the connection without a farewell."""
        with contextlib.suppress(OSError):
            self._connection._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001 - the driver would read what is to come.
        self._connection._force_close()  # noqa: SLF001 - as above.

    def _packets(self) -> Iterator[bytes]:
        """Yield packets, Int24 length, Int8 number and the body; raise what the server says in place of one."""
        read: Any = self._connection._rfile.read  # noqa: SLF001 - the driver gives its file no other way.
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
        return asking(number, words, self._address)


def _ends(packet: bytes) -> bool:
    """Int8 0xFE, Int16 warnings, Int16 status; a row that begins like that has a column of 16 MiB."""
    return len(packet) < 9 and packet[0] == _END
