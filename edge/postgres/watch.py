"""Watches the server from beside the log: what the slot retains, and whether publication and slot are still there.

PostgreSQL 18 only warns when a publication vanishes under a running stream, and sends nothing more; this notices within
a few seconds. Runs in a thread with a connection of its own; a failed look is tried again at the next one.
"""

import logging
import threading
from collections.abc import Callable

from edge.figures import Figures, look_seconds
from edge.outbox import Outbox
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.publication import check_publication
from edge.postgres.session import Database
from edge.postgres.slot import log_end, present_slot, retained_bytes
from headrace.configuration.edge import EdgeFile, Postgresql
from headrace.errors import NeedsOperator, ReplicationError

_log = logging.getLogger(__name__)

_LONGEST_SECONDS = 5.0


class Watch:
    """Looks at slot and publication every few seconds until stopped; leaves what it finds in figures and outbox."""

    def __init__(
        self,
        config: EdgeFile,
        connection: Postgresql,
        checkpoint: Callable[[], PostgresCheckpoint],
        figures: Figures,
        outbox: Outbox,
    ) -> None:
        self._config = config
        self._connection = connection
        self._checkpoint = checkpoint
        self._figures = figures
        self._outbox = outbox
        self._wal_status = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a look that hangs ends with the process."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    def _run(self) -> None:
        database: Database | None = None
        every = look_seconds(self._config)
        while not self._stopped.wait(every):
            try:
                database = database or Database(self._connection, self._config.source.name)
                self._look(database)
            except NeedsOperator as problem:
                self._outbox.fail(problem)
                break
            except ReplicationError as error:
                _log.debug("the look at the server failed: %s", error.message)
                if database is not None:
                    database.close()
                database = None
        if database is not None:
            database.close()

    def _look(self, database: Database) -> None:
        checkpoint = self._checkpoint()
        check_publication(database, checkpoint)
        slot = present_slot(database, checkpoint)
        self._figures.saw_log(log_end(database), retained=retained_bytes(database, slot), safe=slot.safe_bytes)
        if slot.wal_status != self._wal_status:
            self._wal_status = slot.wal_status
            if slot.wal_status == "unreserved":
                _log.warning(
                    "slot %s has outgrown max_slot_wal_keep_size: the server will remove its log soon, and changes with it",
                    slot.name,
                )
