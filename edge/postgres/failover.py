"""What becomes of a source when its server is on another timeline: a standby was promoted, or a backup restored.

Guarantees that a source goes on in its epoch only where nothing that was captured or sent can lie beyond the point at which
the timelines part: up to there both have the same log, beyond it the former one had changes that the new one never will.
Everything else is a NeedsOperator with both LSNs. Called by edge/postgres/engine.py.

A timeline history file has a line for each former timeline: its number, the LSN at which it was left, and why.

What is looked at next to a PostgreSQL log: what the slot retains, whether publication and slot are there, and whether the
server still holds back what its standbys lack.
"""

import time
from collections.abc import Callable, Iterable, Mapping

import msgspec

from edge.delivery.outbox import Outbox
from edge.engine import CheckpointChanged, ServerWatch
from edge.observability.figures import Figures
from edge.postgres.catalog import check_publication, enum_labels, published, published_columns
from edge.postgres.checkpoint import LastCommit, PostgresCheckpoint, format_lsn, parse_lsn
from edge.postgres.connection import Database
from edge.postgres.errors import CAPTURE_AGAIN
from edge.postgres.publishing import find_refused
from edge.postgres.replication import ReplicationStream, System
from edge.postgres.slot import Slot, check_log_end, find_slot, log_end, present_slot, retained_bytes, timeline
from edge.records.alterations import Published
from edge.records.column_policy import PolicyTable
from headrace.configuration.edge import EdgeFile
from headrace.errors import NeedsOperator, Retryable


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
            last_commit=LastCommit(format_lsn(confirmed), 0),
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


_UNRESERVED = "the slot has outgrown max_slot_wal_keep_size: the server will remove its log soon, and changes with it"


#: Between two looks for tables whose updates the server refuses, in seconds: they take longer where there are many tables.
_HARM_SECONDS = 60.0
_HARMS = "the server refuses updates and deletes of {table}, which is published and whose rows the log cannot identify: {fix}"


class KnownCatalog:
    """What the session compared with its table history, or a later look found; None before."""

    #: The labels of enum types.
    labels: dict[str, dict[str, str]] | None = None
    published: Published | None = None


class Watch(ServerWatch[Database, PostgresCheckpoint]):
    """Looks at slot, publication and `synchronized_standby_slots`."""

    def __init__(
        self,
        config: EdgeFile,
        connect: Callable[[], Database],
        checkpoint: Callable[[], PostgresCheckpoint],
        figures: Figures,
        outbox: Outbox,
        left_out: Mapping[str, str],
        known: KnownCatalog,
    ) -> None:
        # Before the thread starts.
        self._known = known
        self._harms_at = 0.0
        super().__init__(config, connect, checkpoint, figures, outbox, left_out)

    def look(self, connection: Database) -> None:
        """Look once."""
        checkpoint = self._checkpoint()
        if timeline(connection) != checkpoint.timeline:
            # A standby was promoted: the next session finds out whether the source goes on there.
            return
        # Asked for ahead of the log's end: capture goes on meanwhile.
        sent = self._outbox.sent.commit
        check_log_end(log_end(connection), checkpoint, sent)
        check_publication(connection, checkpoint)
        slot = present_slot(connection, checkpoint)
        if (changed := guard(connection, slot, checkpoint)) is not None:
            # The next session notes it, before it sends anything.
            self._outbox.reopen(Retryable(changed.message))
        retained = retained_bytes(connection, slot)
        self._figures.saw_log(log_end(connection), retained=retained, safe=slot.safe_bytes)
        self._look_at_labels(connection)
        self._look_at_publication(connection, checkpoint.publication)
        self.warn_of(retained)
        self.warn("slot", _UNRESERVED if slot.wal_status == "unreserved" else "")
        self.look_at_policy(connection)

    def policy_tables(self, connection: Database) -> Iterable[PolicyTable]:
        """Return the published tables with their columns."""
        return published_columns(connection, self._checkpoint().publication)

    def _look_at_labels(self, connection: Database) -> None:
        """Have the next session compare the labels of enum types when they are others: the log has no record of that."""
        if self._known.labels is None:
            return
        labels = enum_labels(connection)
        former, self._known.labels = self._known.labels, labels
        former_labels = [(kind, number, label) for kind, named in former.items() for number, label in named.items()]
        if any(labels.get(kind, {}).get(number, label) != label for kind, number, label in former_labels):
            self._outbox.reopen(Retryable("labels of an enum type were changed: the log is read again by the new ones"))

    def _look_at_publication(self, connection: Database, name: str) -> None:
        """Have the next session compare what is published when it is something else, and warn of tables that this harms."""
        if self._known.published is not None:
            former = self._known.published
            self._known.published = published(connection, name, former)
            if former != self._known.published:
                self._outbox.reopen(Retryable(f"publication {name!r} or partitions that it has were altered"))
                self._harms_at = 0.0
        if time.monotonic() >= self._harms_at:
            self._harms_at = time.monotonic() + _HARM_SECONDS
            refused = find_refused(connection, name)
            self.warn("publication", _HARMS.format(table=refused[0].quoted, fix=refused[0].remedy) if refused else "")
