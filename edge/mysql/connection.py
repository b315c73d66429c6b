"""An ordinary connection to MariaDB or MySQL.

Guarantees that every failure is NotConnected (try again) or NeedsOperator (with what mends it). A connection serves one thread.
"""

import contextlib
import re
from collections.abc import Iterator
from typing import Any

from edge.mysql.driver import DictCursor, Error, MySQLError, connect, said
from edge.mysql.errors import running
from headrace.configuration.edge import Mysql
from headrace.errors import NotConnected, ReplicationError


class Database:
    """An ordinary connection, for questions and for `init`."""

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
        with self._translated(), self._connection.cursor() as cursor:
            cursor.execute(query, parameters or None)
            return list(cursor.fetchall())

    def dictionaries(self, query: str) -> list[dict[str, Any]]:
        """Run a statement and return its rows by the names of their columns."""
        with self._translated(), self._connection.cursor(DictCursor) as cursor:
            cursor.execute(query)
            return list(cursor.fetchall())

    def value(self, query: str, *parameters: Any) -> Any:
        """Return the first column of the first row, None when there is no row."""
        rows = self.rows(query, *parameters)
        return rows[0][0] if rows else None

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

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except MySQLError as error:
            raise self._problem(*said(error)) from error
        except OSError as error:
            raise NotConnected(f"the connection to {self._address} was lost: {error}") from error
