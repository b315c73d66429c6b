"""psycopg 3, PostgreSQL's driver: the one module of the edge that imports it.

Guarantees the session settings that the decoder assumes, and that a connection that cannot be had is NotConnected (try again) or
NeedsOperator (with what mends it). Called by edge/postgres/connection.py and edge/postgres/replication.py.
"""

from typing import Any

import psycopg
from psycopg import Error, pq
from psycopg.errors import Diagnostic
from psycopg.rows import tuple_row

from edge.postgres.errors import connecting
from headrace.configuration.edge import Postgresql

__all__ = ["Diagnostic", "Error", "connect", "pq", "text"]

_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}
#: A peer that vanished without a word is noticed after about this long.
_KEEPALIVES = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}


def connect(config: Postgresql, source: str, **more: Any) -> psycopg.Connection[tuple[Any, ...]]:
    """Return a new connection, on which each statement commits by itself."""
    settings = _SETTINGS if more else _SETTINGS | {"statement_timeout": "60s"}
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
