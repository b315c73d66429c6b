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
from edge.postgres.slot import log_end, present_slot, retained_bytes, timeline
from headrace.configuration.edge import EdgeFile, Postgresql
from headrace.errors import NeedsOperator, ReplicationError

_log = logging.getLogger(__name__)

_UNRESERVED = "the slot has outgrown max_slot_wal_keep_size: the server will remove its log soon, and changes with it"


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
        if timeline(database) != checkpoint.timeline:
            # A standby was promoted: the next session finds out whether the source goes on there.
            return
        check_publication(database, checkpoint)
        slot = present_slot(database, checkpoint)
        retained = retained_bytes(database, slot)
        self._figures.saw_log(log_end(database), retained=retained, safe=slot.safe_bytes)
        self._warn("retained", self._much(retained))
        self._warn("slot", _UNRESERVED if slot.wal_status == "unreserved" else "")

    def _much(self, retained: int) -> str:
        limit = self._config.limits.retained_wal_megabytes
        if not limit or retained < limit << 20:
            return ""
        return f"the source keeps {retained >> 20} MB of log for this edge, more than [limits] retained_wal_megabytes = {limit}"

    def _warn(self, name: str, words: str) -> None:
        """Keep a warning among the figures while it holds, and log it when it begins."""
        if not words:
            self._figures.warned.pop(name, None)
        else:
            if name not in self._figures.warned:
                _log.warning("%s", words)
            self._figures.warned[name] = words
