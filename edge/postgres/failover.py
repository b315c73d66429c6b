"""What becomes of a source when its server is on another timeline: a standby was promoted, or a backup restored.

Guarantees that a source goes on in its epoch only where nothing that was captured or sent can lie beyond the point at which
the timelines part: up to there both have the same log, beyond it the former one had changes that the new one never will.
Everything else is a NeedsOperator with both LSNs. Called by edge/postgres/engine.py.

A timeline history file has a line for each former timeline: its number, the LSN at which it was left, and why.
"""

import msgspec

from edge.engine import CheckpointChanged
from edge.postgres.checkpoint import PostgresCheckpoint, format_lsn, parse_lsn
from edge.postgres.connection import Database
from edge.postgres.errors import CAPTURE_AGAIN
from edge.postgres.replication import ReplicationStream, System
from edge.postgres.slot import Slot, find_slot
from headrace.errors import NeedsOperator


def follow(
    stream: ReplicationStream, database: Database, system: System, checkpoint: PostgresCheckpoint
) -> CheckpointChanged | None:
    """Return how to go on where the server's timeline is not the checkpoint's, None where it is.

    Raises NeedsOperator when changes may be lost or repeated.
    """
    if system.timeline == checkpoint.timeline:
        return None
    moved = f"the server is on timeline {system.timeline}, the checkpoint was made on {checkpoint.timeline}"
    if system.timeline < checkpoint.timeline:
        raise NeedsOperator(
            f"{moved}: this is the former primary, or an older backup of it",
            hint="Connect to the server that was promoted, and shut this one down or make it a standby.",
        )
    left = parted_at(stream.timeline_history(system.timeline), checkpoint.timeline)
    if left is None:
        raise NeedsOperator(
            f"{moved}, from which it does not descend: it was restored from before, and what was captured since may be undone",
            hint=f"{CAPTURE_AGAIN} Then compare with 'headrace verify'.",
        )
    captured = checkpoint.promised or checkpoint.position
    if captured.commit >= left:
        raise NeedsOperator(
            f"{moved}, which was left at {format_lsn(left)}, and the source is captured up to {format_lsn(captured.commit)}: the "
            "former primary had committed what the new one does not have",
            hint=f"What lies between the two is in Kafka and not in the database. {CAPTURE_AGAIN} "
            "For the next time name the standby's "
            "slot in synchronized_standby_slots: then nothing is sent that it lacks.",
        )
    slot = find_slot(database, checkpoint.slot)
    if slot is None:
        raise NeedsOperator(
            f"{moved}, and slot {checkpoint.slot!r} is not there: it was no failover slot, or was not synchronised in time; "
            f"changes after {checkpoint.confirmed_lsn} that were not captured are lost",
            hint=f"{CAPTURE_AGAIN} For the next time set failover = true in [source.postgresql] (PostgreSQL 17 or newer), and "
            "sync_replication_slots on the standby.",
        )
    if not checkpoint.guarded:
        raise NeedsOperator(
            f"{moved}, which was left at {format_lsn(left)}. All that was acknowledged lies before that "
            f"({checkpoint.acknowledged}), but the former primary did not hold back what its standbys lacked, so more may have "
            "been sent",
            hint="Take the source's position from 'headrace bridge positions'. If the middle part of it, its LSN, is smaller "
            f"than {left:016x}, move the checkpoint to another folder and run 'headrace edge init --adopt --position POSITION': "
            f"nothing is lost or doubled. Otherwise: {CAPTURE_AGAIN}",
        )
    confirmed = min(checkpoint.confirmed, left)
    return CheckpointChanged(
        f"{moved}, which was left at {format_lsn(left)}: a standby was promoted that has all that was captured, up to "
        f"{format_lsn(captured.commit)}; going on there from {format_lsn(confirmed)}",
        msgspec.structs.replace(
            checkpoint,
            timeline=system.timeline,
            confirmed_lsn=format_lsn(confirmed),
            guarded=False,
            unseen=msgspec.UNSET,
        ),
        until=left,
    )


def guard(database: Database, slot: Slot, checkpoint: PostgresCheckpoint) -> CheckpointChanged | None:
    """Return how to note whether the server holds back what its standbys lack, None where that is noted."""
    guarded = slot.failover and bool(
        database.value("select setting from pg_settings where name = 'synchronized_standby_slots'")
    )
    if guarded == checkpoint.guarded:
        return None
    return CheckpointChanged(
        "the server sends only what its standbys have: a failover goes on by itself"
        if guarded
        else "the server no longer holds back what its standbys lack: after a failover somebody has to compare positions",
        msgspec.structs.replace(checkpoint, guarded=guarded),
    )


def parted_at(history: str, timeline: int) -> int | None:
    """Return the LSN at which a timeline was left, None when the history does not have it."""
    for line in history.splitlines():
        words = line.partition("#")[0].split()
        if len(words) >= 2 and words[0] == str(timeline):
            return parse_lsn(words[1])
    return None
