"""The server's process that serves this edge's stream, noted in the state folder.

A process that was killed, or whose machine is gone, leaves its walsender at the server for as long as `wal_sender_timeout`, or
while that decodes what is not published; it holds the slot meanwhile. The next process of the edge ends it, and nobody else's: it
is known by its process id and the time at which it began.
"""

import logging
from pathlib import Path

import msgspec

from edge.postgres.connection import Database
from headrace import files
from headrace.errors import ReplicationError

_log = logging.getLogger(__name__)

_NAME = "walsender.json"
_BEGAN = "select to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS.US') from pg_stat_activity where pid = %s"


class _Note(msgspec.Struct, frozen=True):
    #: The cluster, whose process ids these are.
    system: str
    pid: int
    began: str


class Walsender:
    """The note of one state folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / _NAME

    def end(self, database: Database, system: str, active_pid: int) -> None:
        """End the process that has the slot, if it is the one of this edge's stream before."""
        note = self._read()
        if note is None or not active_pid or (note.system, note.pid) != (system, active_pid):
            return
        if database.value(_BEGAN, active_pid) == note.began:
            _log.info("ending the server's process %d of the connection that was lost", active_pid)
            database.value("select pg_terminate_backend(%s)", active_pid)

    def note(self, database: Database, system: str, pid: int) -> None:
        """Note the process of this edge's stream, if the disk takes it: without the note the server ends it by itself, later."""
        began = database.value(_BEGAN, pid)
        if began is None:
            return
        try:
            files.write_private(self._path, msgspec.json.encode(_Note(system, pid, began)))
        except ReplicationError as error:
            _log.warning("%s", error.message)

    def _read(self) -> _Note | None:
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=_Note)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            return None
