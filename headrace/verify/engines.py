"""Which engine a source has, by the lake's file: the only place of verification that names them. Called by command.py."""

from contextlib import AbstractContextManager

from headrace.configuration.lake import VerifiedSource
from headrace.verify.engine import Database


def connect(source: str, address: VerifiedSource, *, placed: bool = False) -> AbstractContextManager[Database]:
    """Give the database in a snapshot that lasts as long as the context; `placed`, at a place of the log that is known.

    Raises NotConnected when the server cannot be reached, NeedsOperator when it refuses the user, or does not report its place.
    """
    # Each client is imported where a source needs it.
    if address.postgresql is not None:
        from headrace.verify.postgres.database import SourceDatabase

        return SourceDatabase.connect(source, address.postgresql, placed=placed)
    from headrace.verify.mysql.database import MysqlDatabase

    mysql = address.mariadb or address.mysql
    assert mysql is not None
    return MysqlDatabase.connect(source, mysql, placed=placed)
