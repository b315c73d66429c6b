"""Watches the server from beside the log: how much binlog stands after the checkpoint, and whether that is still there.

Runs in a thread with a connection of its own; a failed look is tried again at the next one.
"""

import logging
import threading
from collections.abc import Callable

from edge.figures import Figures, look_seconds
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.place import place, split_name
from edge.mysql.server import check_log, check_settings
from edge.mysql.session import Database
from edge.outbox import Outbox
from headrace.configuration.edge import EdgeFile, Mysql
from headrace.errors import NeedsOperator, ReplicationError

_log = logging.getLogger(__name__)

_LONGEST_SECONDS = 5.0


class Watch:
    """Looks at settings and binlog every few seconds until stopped; leaves what it finds in figures and outbox."""

    def __init__(
        self,
        config: EdgeFile,
        connection: Mysql,
        checkpoint: Callable[[], MysqlCheckpoint],
        figures: Figures,
        outbox: Outbox,
    ) -> None:
        self._config, self._connection, self._checkpoint = config, connection, checkpoint
        self._figures, self._outbox = figures, outbox
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
        check_settings(database, mariadb=self._config.source.mariadb is not None)
        checkpoint = self._checkpoint()
        log = check_log(database, checkpoint)
        name, size = log.end
        self._figures.saw_log(place(split_name(name)[1], size), retained=log.retained(checkpoint.confirmed), safe=None)
