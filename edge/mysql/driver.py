"""PyMySQL, the driver of MariaDB and MySQL: the one module of the edge that imports it.

It connects, logs in and sets up TLS. A connection that cannot be had is NotConnected (try again) or NeedsOperator (with what
mends it). Called by edge/mysql/connection.py.
"""

import socket
from typing import Any

import pymysql
from pymysql import Error, MySQLError
from pymysql.cursors import DictCursor

from edge.mysql.errors import connecting
from headrace.configuration.edge import Mysql
from headrace.errors import NotConnected

__all__ = ["DictCursor", "Error", "MySQLError", "connect", "said"]


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
        )
    except MySQLError as error:
        raise connecting(*said(error), str(config), config.user) from error
    except OSError as error:
        raise NotConnected(f"server {config} cannot be reached: {error}") from error
    raw = connection._sock  # noqa: SLF001 - the driver gives its socket no other way.
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
        raw.setsockopt(socket.IPPROTO_TCP, option, value)
    return connection


def said(error: MySQLError) -> tuple[int, str]:
    """Return an error's number and its words; 0 where it has none."""
    number, *words = error.args or (0, "")
    return (number, str(words[0]) if words else "") if isinstance(number, int) else (0, str(number))
