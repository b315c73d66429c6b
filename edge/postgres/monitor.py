"""What is looked at next to a PostgreSQL log: what the slot retains, whether publication and slot are there, and whether the
server still holds back what its standbys lack.

PostgreSQL 18 only warns when a publication vanishes under a running stream, and sends nothing more; this notices within
a few seconds.
"""

import time
from collections.abc import Callable

from edge import watch
from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures
from edge.postgres.catalog import check_publication, enum_labels, published
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.connection import Database
from edge.postgres.failover import guard
from edge.postgres.publishing import find_refused
from edge.postgres.slot import check_log_end, log_end, present_slot, retained_bytes, timeline
from edge.records.alterations import Published
from headrace.configuration.edge import EdgeFile
from headrace.errors import Retryable

_UNRESERVED = "the slot has outgrown max_slot_wal_keep_size: the server will remove its log soon, and changes with it"

#: Between two looks for tables whose updates the server refuses, in seconds: they take longer where there are many tables.
_HARM_SECONDS = 60.0
_HARMS = "the server refuses updates and deletes of {table}, which is published and whose rows the log cannot identify: {fix}"


class KnownCatalog:
    """What the session compared with its table history, or a later look found; None before."""

    #: The labels of enum types.
    labels: dict[str, dict[str, str]] | None = None
    published: Published | None = None


class Watch(watch.Watch[Database, PostgresCheckpoint]):
    """Looks at slot, publication and `synchronized_standby_slots`."""

    def __init__(
        self,
        config: EdgeFile,
        connect: Callable[[], Database],
        checkpoint: Callable[[], PostgresCheckpoint],
        figures: Figures,
        outbox: Outbox,
        known: KnownCatalog,
    ) -> None:
        # Before the thread starts.
        self._known = known
        self._harms_at = 0.0
        super().__init__(config, connect, checkpoint, figures, outbox)

    def look(self, connection: Database) -> None:
        """Look once."""
        checkpoint = self._checkpoint()
        if timeline(connection) != checkpoint.timeline:
            # A standby was promoted: the next session finds out whether the source goes on there.
            return
        end = log_end(connection)
        check_log_end(end, checkpoint, self._outbox.sent.commit)
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

    def _look_at_labels(self, connection: Database) -> None:
        """Have the next session compare the labels of enum types when they are others: the log has no record of that."""
        if self._known.labels is None:
            return
        labels = enum_labels(connection)
        former, self._known.labels = self._known.labels, labels
        known = [(kind, number, label) for kind, named in former.items() for number, label in named.items()]
        if any(labels.get(kind, {}).get(number, label) != label for kind, number, label in known):
            self._outbox.reopen(Retryable("labels of an enum type were changed: the log is read again by the new ones"))

    def _look_at_publication(self, connection: Database, name: str) -> None:
        """Have the next session compare what is published when it is something else, and warn of tables that this harms."""
        if self._known.published is not None:
            former, self._known.published = self._known.published, published(connection, name)
            if former != self._known.published:
                self._outbox.reopen(Retryable(f"publication {name!r} or partitions that it has were altered"))
                self._harms_at = 0.0
        if time.monotonic() >= self._harms_at:
            self._harms_at = time.monotonic() + _HARM_SECONDS
            refused = find_refused(connection, name)
            self.warn("publication", _HARMS.format(table=refused[0].quoted, fix=refused[0].remedy) if refused else "")
