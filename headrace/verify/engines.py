"""Which engine a source has, by its configuration: the only place of verification that names them."""

from contextlib import AbstractContextManager
from typing import Literal, Protocol

from headrace.configuration.databases import PostgresqlConnection
from headrace.configuration.edge import Mysql
from headrace.configuration.lake import VerifiedMysql
from headrace.verify import canonical
from headrace.verify.comparison import Database, Forms, Reading
from headrace.verify.mysql import canonical as mysql_canonical

Engine = Literal["postgresql", "mysql"]


class Address(Protocol):
    """A source's database, of which one kind is given: `[source]` of an edge's file, `[sources."x/y"]` of the lake's."""

    @property
    def postgresql(self) -> PostgresqlConnection | None:
        """Return how it is reached where it is PostgreSQL."""

    @property
    def mariadb(self) -> Mysql | VerifiedMysql | None:
        """Return how it is reached where it is MariaDB."""

    @property
    def mysql(self) -> Mysql | VerifiedMysql | None:
        """Return how it is reached where it is MySQL."""


def engine_of(address: Address) -> Engine:
    """Return the engine; MariaDB's and MySQL's is one."""
    return "mysql" if address.postgresql is None else "postgresql"


def forms(engine: Engine) -> Forms:
    """Return how an engine's values are written."""
    return canonical if engine == "postgresql" else mysql_canonical


def connect(
    source: str, address: Address, *, placed: bool = False, reading: Reading | None = None
) -> AbstractContextManager[Database]:
    """Give the database in a snapshot that lasts as long as the context; `placed`, at a place of the log that is known.

    Raises NotConnected when the server cannot be reached, NeedsOperator when it refuses the user, or does not report its place.
    """
    reading = reading or Reading()
    # Each client is imported where a source needs it.
    if address.postgresql is not None:
        from headrace.verify.postgres.database import SourceDatabase

        return SourceDatabase.connect(source, address.postgresql, placed=placed, reading=reading)
    from headrace.verify.mysql.database import MysqlDatabase

    mysql = address.mariadb or address.mysql
    assert mysql is not None
    return MysqlDatabase.connect(source, mysql, placed=placed, reading=reading)
