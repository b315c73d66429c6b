"""What a MariaDB or MySQL server refuses, as errors that state who must act and what to run there.

No message repeats the server's own, which could hold a value of a row, but for a refused connection. Called by database.py.
"""

from headrace.configuration.databases import MysqlConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable

#: The server's numbers of an answer, as opposed to those of a client that got none.
_REFUSED = {1044, 1045, 1049, 1129, 1130, 1698, 3118, 3159}
_MAY_NOT = {1142, 1143, 1227, 1044, 1370}
_LOST = {0, 1053, 1927, 2003, 2006, 2013, 2014, 2055, 4031}
#: What is read under the lock that no writer passes, by which its failures are known.
LOCK = "its place in the binlog, under a lock"
_CHANGED, _WAITED = {1412, 1146, 1054}, {1205, 3024, 1969}


def refused(source: str, address: MysqlConnection, settings: str, number: int, message: str) -> ReplicationError:
    """Return why no connection could be made; `settings` names the file."""
    if number in _REFUSED:
        return NeedsOperator(
            f"source {source}: {address} refuses user {address.user!r}: {message.strip().splitlines()[0]}",
            hint=f"Check user, password and sslmode of the source in {settings}.",
        )
    return NotConnected(
        f"source {source}: {address} cannot be reached",
        hint=f"Check that the server runs, and host and port of the source in {settings}.",
    )


def no_binlog(source: str, address: MysqlConnection) -> NeedsOperator:
    """Return the error of a server that does not report the place of a snapshot in its log."""
    return NeedsOperator(
        f"source {source}: {address} writes no binlog",
        hint="Name the server that is captured. Or let writers rest, load, and compare with --at-rest.",
    )


def reading(source: str, address: MysqlConnection, about: str, number: int) -> ReplicationError:
    """Return why something could not be read; `number` is the server's, or the client's where no answer came."""
    if number in _MAY_NOT and about == LOCK:
        return Retryable(
            f"source {source}: at {address} there was no moment between two commits, and user {address.user!r} may not lock it",
            hint=f"Verify again when less is written; or run there, if you may: GRANT RELOAD ON *.* TO {address.user}; or let "
            "writers rest, load, and compare with --at-rest.",
        )
    if number in _MAY_NOT:
        return NeedsOperator(
            f"source {source}: user {address.user!r} may not read {about}",
            hint=f"Run there: GRANT SELECT, REPLICATION CLIENT ON *.* TO {address.user};",
        )
    if number in _LOST:
        return NotConnected(
            f"source {source}: the connection to {address} was lost while reading {about}",
            hint="Verify again when the server is back; nothing was changed.",
        )
    if number in _CHANGED:
        return Retryable(
            f"source {source}: {about} was altered while it was compared", hint="Verify again: a snapshot sees no DDL."
        )
    if number in _WAITED:
        return Retryable(
            f"source {source}: reading {about} took longer than {address} allows",
            hint="Verify again when its long statements have ended. Where one table needs longer, raise "
            "verify_statement_seconds in the edge's file, or max_statement_time for the user.",
        )
    return NeedsOperator(
        f"source {source}: {about} cannot be read: error {number}",
        hint=f"Look the number up in the server's manual, and see the log of {address}.",
    )
