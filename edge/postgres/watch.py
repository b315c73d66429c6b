"""What is looked at beside a PostgreSQL log: what the slot retains, and whether publication and slot are still there.

PostgreSQL 18 only warns when a publication vanishes under a running stream, and sends nothing more; this notices within
a few seconds.
"""

from edge import watch
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.database import Database
from edge.postgres.publication import check_publication
from edge.postgres.slot import log_end, present_slot, retained_bytes, timeline

_UNRESERVED = "the slot has outgrown max_slot_wal_keep_size: the server will remove its log soon, and changes with it"


class Watch(watch.Watch[Database, PostgresCheckpoint]):
    """Looks at slot and publication."""

    def look(self, connection: Database) -> None:
        """Look once."""
        checkpoint = self._checkpoint()
        if timeline(connection) != checkpoint.timeline:
            # A standby was promoted: the next session finds out whether the source goes on there.
            return
        check_publication(connection, checkpoint)
        slot = present_slot(connection, checkpoint)
        retained = retained_bytes(connection, slot)
        self._figures.saw_log(log_end(connection), retained=retained, safe=slot.safe_bytes)
        self.warn_of(retained)
        self.warn("slot", _UNRESERVED if slot.wal_status == "unreserved" else "")
