"""A source's database, read in one snapshot: its tables, and the answers to queries.

All queries of a connection see the same moment (repeatable read) and cannot write. Called by command.py and source_side.py.
The only module here that imports psycopg2.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import psycopg2

from headrace.configuration.postgresql import PostgresqlConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError
from spark_jobs.verify.canonical import SourceType

#: The settings under which the edge reads values, so that the server prints them the same way.
_SETTINGS = {
    "datestyle": "ISO",
    "intervalstyle": "postgres",
    "timezone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}
_TABLES = files("spark_jobs.verify").joinpath("source_tables.sql").read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class SourceTable:
    """A table at the source, as its catalog has it in the snapshot."""

    schema: str
    name: str
    #: Whether its rows stand in partitions.
    partitioned: bool
    #: The tables that it is a partition of, `schema.table`.
    partition_of: frozenset[str]
    #: The columns that are stored (generated ones are not captured), in order.
    columns: dict[str, SourceType]
    #: Key columns in key order; empty for a table without a key.
    key: tuple[str, ...]

    def __str__(self) -> str:
        """Return `schema.table`."""
        return f"{self.schema}.{self.name}"


class SourceDatabase:
    """A database of a source, in the snapshot of one transaction. Not safe for two threads at a time."""

    def __init__(self, source: str, address: PostgresqlConnection, connection: Any) -> None:
        self._source = source
        self._address = address
        self._connection = connection

    @classmethod
    @contextmanager
    def connect(cls, source: str, address: PostgresqlConnection) -> Iterator["SourceDatabase"]:
        """Give the database in a snapshot that lasts as long as the context.

        Raises NotConnected when the server cannot be reached, NeedsOperator when it refuses.
        """
        try:
            connection = psycopg2.connect(
                **address.parameters(),
                application_name="headrace verify",
                client_encoding="UTF8",
                options=" ".join(f"-c {name}={value}" for name, value in _SETTINGS.items()),
            )
        except psycopg2.OperationalError as error:
            raise _refused(source, address, error) from error
        try:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            yield cls(source, address, connection)
        finally:
            connection.close()

    def tables(self) -> list[SourceTable]:
        """Return the tables that can be captured, by name; system tables, unlogged and temporary ones are none."""
        return [
            SourceTable(
                schema=schema,
                name=name,
                partitioned=partitioned,
                partition_of=frozenset(above),
                columns={column: _type(kind, modifier) for column, kind, modifier in columns},
                key=tuple(key),
            )
            for schema, name, partitioned, above, columns, key in self.query(_TABLES, "the catalog")
        ]

    def query(self, statement: str, about: str) -> list[tuple[Any, ...]]:
        """Return a statement's rows; an error says what the statement was about, never what a row holds."""
        try:
            with self._connection.cursor() as cursor:
                cursor.execute(statement)
                rows: list[tuple[Any, ...]] = cursor.fetchall()
                return rows
        except psycopg2.errors.InsufficientPrivilege as error:
            raise NeedsOperator(
                f"source {self._source}: user {self._address.user!r} may not read {about}",
                hint=f"Run there: GRANT SELECT ON {about} TO {self._address.user}; (and USAGE on its schema).",
            ) from error
        except (psycopg2.OperationalError, psycopg2.InterfaceError) as error:
            raise NotConnected(
                f"source {self._source}: the connection to {self._address} was lost while reading {about}",
                hint="Verify again when the database is back; nothing was changed.",
            ) from error
        except psycopg2.Error as error:
            # The server's own message could hold a value of a row; its code does not.
            raise NeedsOperator(
                f"source {self._source}: {about} cannot be read: PostgreSQL error {error.pgcode}",
                hint=f"See the log of {self._address} for the statement and its message.",
            ) from error


def _type(name: str, modifier: int) -> SourceType:
    if name != "numeric" or modifier < 0:
        return SourceType(name=name)
    # The scale is the low 11 bits of the modifier (less 4), as a number with a sign.
    return SourceType(name=name, scale=(((modifier - 4) & 0x7FF) ^ 1024) - 1024)


def _refused(source: str, address: PostgresqlConnection, error: psycopg2.OperationalError) -> ReplicationError:
    # Without a connection there is no error code; a server that answers starts its message with FATAL.
    answer = str(error).strip().splitlines()[-1]
    starting = ("starting up", "shutting down", "recovery", "too many", "not yet accepting")
    if "FATAL" in answer and not any(word in answer for word in starting):
        return NeedsOperator(
            f"source {source}: {address} refuses user {address.user!r}: {answer.partition('FATAL:')[2].strip()}",
            hint=f'Check [sources."{source}".postgresql] in the lake\'s file: database, user, password.',
        )
    return NotConnected(
        f"source {source}: {address} cannot be reached",
        hint=f'Check that the database runs, and host and port in [sources."{source}".postgresql].',
    )
