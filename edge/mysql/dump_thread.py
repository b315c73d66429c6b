"""The server's thread that sends an edge its binlog: whether another has it, and how one that a dead edge left is ended.

A server notices only when its TCP gives up, after some fifteen minutes, that an edge's host is gone, and keeps the thread until
then. So the state folder has a note of the thread, with the server's start, since numbers begin again with it: whoever has the
folder next, after a crash or on another host, ends that thread. Of anybody else's thread nothing is ended.
"""

import logging
from pathlib import Path
from typing import Any

import msgspec

from edge.mysql.checks import SHOW_REPLICAS
from edge.mysql.connection import Database
from edge.mysql.errors import ServerIdTaken
from headrace import files
from headrace.errors import NeedsOperator, NoSpace

_log = logging.getLogger(__name__)

_NAME = "dump-thread.json"
#: By how many seconds two readings of a server's start may differ: both are of whole seconds, and its clock is corrected.
_TOLERANCE_SECONDS = 5


class _Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = 1
    #: The server's number of the connection.
    number: int
    #: When the server was started, in seconds since 1970 by its own clock.
    server_started: int


def note(folder: Path, database: Database, number: int) -> None:
    """Note that a connection carries the binlog from now on; a disk that is full leaves the former note."""
    data = msgspec.json.encode(_Note(number=number, server_started=_started(database)))
    try:
        files.write_private(folder / _NAME, data)
    except NoSpace as error:
        _log.warning("the server's thread %d is not noted: %s", number, error.message)


def noted(folder: Path, database: Database) -> int:
    """Return the number of the connection that was noted, 0 for none and for one of before the server's last start."""
    try:
        found = msgspec.json.decode((folder / _NAME).read_bytes(), type=_Note)
    except FileNotFoundError:
        return 0
    except (OSError, msgspec.MsgspecError) as error:
        _log.warning("the note of the server's thread in %s is not read: %s", folder / _NAME, error)
        return 0
    is_same = abs(found.server_started - _started(database)) <= _TOLERANCE_SECONDS
    return found.number if is_same else 0


def check_server_id(database: Database, server_id: int, former: int) -> None:
    """Raise ServerIdTaken while another replica with this number reads the binlog.

    `former` is the server's number of this edge's connection before, 0 for none: the server may not have noticed yet that it is
    gone, and is ended.
    """
    hosts = replicas(database)
    if server_id == int(database.value("select @@global.server_id")):
        raise NeedsOperator(
            f"server_id {server_id} is the server's own", hint="Give the edge a server_id that no server has."
        )
    if server_id not in {int(row[0]) for row in hosts}:
        return
    dumps = {int(row[0]) for row in database.rows("show processlist") if str(row[4]).startswith("Binlog Dump")}
    if former not in dumps:
        raise ServerIdTaken(server_id)
    _log.info("ending the server's connection %d that was lost", former)
    database.rows(f"kill {former}")


def replicas(database: Database) -> list[tuple[Any, ...]]:
    """Return the replicas that read the binlog, their numbers first."""
    newer = not database.is_mariadb and database.release >= SHOW_REPLICAS
    return database.rows("show replicas" if newer else "show slave hosts")


def _started(database: Database) -> int:
    """Return when the server was started, in seconds since 1970 by its clock."""
    ((_, seconds),) = database.rows("show global status like 'Uptime'")
    return int(database.value("select unix_timestamp()")) - int(seconds)
