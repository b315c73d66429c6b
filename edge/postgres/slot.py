"""What the server must be for an edge to go on: its settings, its identity, the slot.

Guarantees that nothing is made, dropped or skipped here: whatever differs from the checkpoint is a NeedsOperator that names
what happened, what is lost if anything is, and what to run. Called at each connection and, while the log streams, by
edge/postgres/failover.py.

A process of an edge that was killed, or whose machine is gone, leaves its walsender at the server for as long as
`wal_sender_timeout`, or while that decodes what is not published; it holds the slot meanwhile. So it is noted in the state
folder, and the edge's next process ends it, and nobody else's: it is known by its process id and the time at which it began.
"""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from edge.postgres.checkpoint import PostgresCheckpoint, format_lsn, parse_lsn
from edge.postgres.connection import Database
from edge.postgres.errors import CAPTURE_AGAIN, NEW_EPOCH, SlotTaken
from edge.postgres.replication import System, output_options
from headrace import files
from headrace.configuration.edge import Postgresql
from headrace.errors import NeedsOperator, ReplicationError
from headrace.formats import UNREADABLE

_log = logging.getLogger(__name__)

#: How a slot is not lost the next time, by why the server removed its log.
_PREVENTION = {
    "wal_removed": "Then raise max_slot_wal_keep_size.",
    "idle_timeout": "Then raise idle_replication_slot_timeout, or keep the edge running.",
    "rows_removed": "Then set hot_standby_feedback on the standby.",
    "wal_level_insufficient": "Then keep wal_level = logical.",
}
#: The first release whose standbys keep logical slots ready.
_FAILOVER_VERSION = 170000


class Slot(NamedTuple):
    """A replication slot as the server shows it."""

    name: str
    plugin: str
    database: str
    active_pid: int
    confirmed: int
    restart: int
    #: `reserved`, `extended`, `unreserved` or `lost`.
    wal_status: str
    #: Whether standbys keep it ready for a failover (PostgreSQL 17 and newer).
    failover: bool
    #: Why the server removed the slot's log; empty when it did not.
    invalidation: str
    #: Log that may still be written before the server removes the slot's, in bytes; None where there is no limit.
    safe_bytes: int | None

    @property
    def lost(self) -> bool:
        """Whether the server no longer has the log that the slot needs."""
        return self.wal_status == "lost" or bool(self.invalidation)


def find_slot(database: Database, name: str) -> Slot | None:
    """Return the slot of that name, None when there is none."""
    row: dict[str, Any] | None = database.value(
        "select to_jsonb(s) from pg_replication_slots s where slot_name = %s", name
    )
    if row is None:
        return None
    return Slot(
        name=name,
        plugin=row["plugin"] or "none: a physical slot",
        database=row["database"] or "",
        active_pid=row["active_pid"] or 0,
        confirmed=parse_lsn(row["confirmed_flush_lsn"] or "0/0"),
        restart=parse_lsn(row["restart_lsn"] or "0/0"),
        wal_status=row["wal_status"] or "",
        failover=row.get("failover") or False,
        # PostgreSQL 16 reports only that there was a conflict.
        invalidation=row.get("invalidation_reason") or ("conflict" if row.get("conflicting") else ""),
        safe_bytes=row["safe_wal_size"],
    )


def check_server(database: Database) -> None:
    """Raise NeedsOperator unless the server writes a log that can be decoded."""
    level = database.value("select current_setting('wal_level')")
    if level != "logical":
        raise NeedsOperator(
            f"the server's wal_level is {level!r}: its log does not carry rows",
            hint="Run as a superuser: alter system set wal_level = 'logical'; then restart the server.",
        )


def check_system(system: System, checkpoint: PostgresCheckpoint) -> None:
    """Raise NeedsOperator unless the server is that of the checkpoint, or a copy of it."""
    if system.identifier != checkpoint.system_identifier:
        raise NeedsOperator(
            f"the server is another one: its system identifier is {system.identifier}, "
            f"the checkpoint was made with {checkpoint.system_identifier}",
            hint=f"Connect to the former server, or start a new epoch here. {NEW_EPOCH}",
        )


def check_log_end(end: int, checkpoint: PostgresCheckpoint, sent: int = 0) -> None:
    """Raise NeedsOperator where the log of the checkpoint's timeline ends below what was captured from it.

    Recovery after a crash keeps the timeline, so that a server whose storage was set back, by a snapshot of its volume or
    machine, is not known by it; and a slot skips, without an error, what commits below the LSN at which its stream is started.
    `sent` is the greatest commit LSN that was sent.
    """
    captured = max(
        checkpoint.confirmed, checkpoint.position.commit, (checkpoint.promised or checkpoint.position).commit, sent
    )
    if end < captured:
        raise _set_back(
            f"its log ends at {format_lsn(end)}, and the source is captured up to {format_lsn(captured)} and confirmed up to "
            f"{checkpoint.confirmed_lsn}, on the same timeline",
        )


#: For how long the server may compare, in seconds: less than until an edge is taken for hung, and than one waits that finds the
#: slot taken.
_COMPARING_SECONDS = 100
#: How often the server looks meanwhile whether the edge is there still: the slot of one that was killed is free again soon.
_LOOK_SECONDS = 2
#: Commit: Byte1('C') Int8(flags) Int64(commit LSN) Int64(end LSN) Int64(commit time). What commits behind the last one of the
#: checkpoint, and whether that one is there.
_COMMITS = """
select count(*) filter (where ended > %s), count(*) filter (where ended = %s and time = %s) from (
    select ('x' || encode(substr(data, 11, 8), 'hex'))::bit(64)::bigint as ended,
        ('x' || encode(substr(data, 19, 8), 'hex'))::bit(64)::bigint as time
    from pg_logical_slot_peek_binary_changes(%s, %s::pg_lsn, null, variadic %s::text[])
    where get_byte(data, 0) = ascii('C')
) as commits where ended <= %s
"""


def check_commits(config: Postgresql, source: str, slot: Slot, checkpoint: PostgresCheckpoint) -> None:
    """Raise NeedsOperator where a log that has grown beyond what was captured is not the one that was captured.

    A server that was set back by its storage has the slot of then, behind the checkpoint. So has one that crashed, and so may the
    edge have left it that was killed: the slot then still sends what was captured, the same commits up to the checkpoint's place.
    They are read without moving the slot. Raises SlotTaken while another process reads it.
    """
    last = checkpoint.last_commit
    if slot.confirmed >= checkpoint.confirmed or last is msgspec.UNSET:
        return
    end, place = parse_lsn(last.end_lsn), checkpoint.confirmed
    options = [word for option in output_options(checkpoint.publication).items() for word in option]
    try:
        with Database(config, source) as database:
            database.wait_for_all()
            # A standby that is down may hold it up for ever.
            database.rows(f"set statement_timeout = '{_COMPARING_SECONDS}s'")
            database.rows(f"set client_connection_check_interval = '{_LOOK_SECONDS}s'")
            ((others, same),) = database.rows(
                _COMMITS, end, end, last.time, slot.name, checkpoint.confirmed_lsn, options, place
            )
    except SlotTaken:
        raise
    except ReplicationError as error:
        # The stream itself may read it all the same.
        _log.warning(
            "the log up to %s was not compared with what was captured: %s", checkpoint.confirmed_lsn, error.message
        )
        return
    if others or (last.time and end > slot.confirmed and not same):
        raise _set_back(
            f"its log has other commits ahead of {checkpoint.confirmed_lsn}, up to where the source is captured, on the same "
            f"timeline; it may have been set back to some place behind {format_lsn(slot.confirmed)}, where slot {slot.name!r} is",
        )
    _log.info(
        "slot %s is at %s, behind the checkpoint: the log has what was captured from there on",
        slot.name,
        format_lsn(slot.confirmed),
    )


def _set_back(what: str) -> NeedsOperator:
    return NeedsOperator(
        f"the server was set back: {what}",
        hint=f"What lies between is in Kafka and not in the database any more. {CAPTURE_AGAIN} Then compare with "
        "'headrace verify'. Or put the server's newer storage back.",
    )


def present_slot(database: Database, checkpoint: PostgresCheckpoint) -> Slot:
    """Return the slot; raise NeedsOperator unless it is there, readable and has its log."""
    slot = find_slot(database, checkpoint.slot)
    if slot is None:
        raise NeedsOperator(
            f"slot {checkpoint.slot!r} is gone: changes after {checkpoint.confirmed_lsn} that were not captured are lost",
            hint=CAPTURE_AGAIN,
        )
    check_kind(slot, checkpoint.database)
    return slot


def check_slot(database: Database, checkpoint: PostgresCheckpoint) -> Slot:
    """Return the slot; raise NeedsOperator unless it can go on exactly where the checkpoint is.

    Raises SlotTaken while another process moves it: who has it comes before what is lost.
    """
    slot = present_slot(database, checkpoint)
    if slot.confirmed > checkpoint.confirmed:
        if slot.active_pid:
            moved = f"slot {slot.name!r} is moved on by process {slot.active_pid} of the server"
            raise SlotTaken(moved, slot.name, slot.active_pid)
        raise NeedsOperator(
            f"slot {slot.name!r} was moved by somebody else: it is at {format_lsn(slot.confirmed)}, the checkpoint at "
            f"{checkpoint.confirmed_lsn}; changes from {checkpoint.confirmed_lsn} to {format_lsn(slot.confirmed)} are lost",
            hint=f"Restore the newest checkpoint file if this one is an old copy; else start a new epoch. {NEW_EPOCH}",
        )
    return slot


def retained_bytes(database: Database, slot: Slot) -> int:
    """Return how much log the server keeps for the slot, in bytes."""
    return parse_lsn(database.value("select pg_current_wal_lsn()::text")) - slot.restart


def check_failover(names: Postgresql, database: Database) -> None:
    """Raise NeedsOperator when failover slots are configured, and the server has none."""
    if names.failover and database.version < _FAILOVER_VERSION:
        raise NeedsOperator(
            f"[source.postgresql] failover is true, and the server is PostgreSQL {database.version // 10000}: failover slots "
            "came with 17",
            hint="Leave failover out; after a failover the tables are then copied again.",
        )


def sender_timeout(database: Database) -> float:
    """Return after how many seconds the server ends a stream whose reader is silent; 0 for never."""
    return int(database.value("select setting from pg_settings where name = 'wal_sender_timeout'")) / 1000


def timeline(database: Database) -> int:
    """Return the timeline that the server writes now."""
    return int(database.value("select left(pg_walfile_name(pg_current_wal_lsn()), 8)"), 16)


def log_end(database: Database) -> int:
    """Return where the log that can be read ends, an LSN: what is not flushed is not sent."""
    return parse_lsn(database.value("select pg_current_wal_flush_lsn()::text"))


def check_kind(slot: Slot, database: str) -> None:
    """Raise NeedsOperator unless the slot is one that an edge of this database can read."""
    if slot.lost:
        why = f" ({slot.invalidation})" if slot.invalidation else ""
        raise NeedsOperator(
            f"slot {slot.name!r} is lost{why}: the server has removed log that was not captured, from "
            f"{format_lsn(slot.confirmed)} on",
            hint=f"{CAPTURE_AGAIN} {_PREVENTION.get(slot.invalidation, _PREVENTION['wal_removed'])}",
        )
    if slot.plugin != "pgoutput":
        raise NeedsOperator(
            f"slot {slot.name!r} has the plugin {slot.plugin}, not pgoutput",
            hint="Name another slot in [source.postgresql] slot.",
        )
    if slot.database != database:
        raise NeedsOperator(
            f"slot {slot.name!r} is of database {slot.database!r}, not of {database!r}",
            hint="Name another slot in [source.postgresql] slot: slots are shared by all databases of a server.",
        )


_NAME = "walsender.json"
_BEGAN = "select to_char(backend_start, 'YYYY-MM-DD HH24:MI:SS.US') from pg_stat_activity where pid = %s"


class _Note(msgspec.Struct, frozen=True):
    #: The cluster, whose process ids these are.
    system: str
    pid: int
    began: str


class Walsender:
    """The server's process that serves this edge's stream, noted in one state folder."""

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
        except (OSError, *UNREADABLE):
            return None
