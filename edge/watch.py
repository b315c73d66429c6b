"""A look at the server next to the log, every few seconds, in a thread with a connection of its own.

A look that fails is tried again at the next one; what only an operator can pass ends the edge. Each engine defines what is looked
at (edge/postgres/failover.py, edge/mysql/engine.py).
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures, look_seconds
from edge.progress.checkpoint import Checkpoint
from edge.records.column_policy import Policy, PolicyTable, unused_words
from edge.snapshot.ports import Database
from headrace.configuration.edge import EdgeFile
from headrace.errors import NeedsOperator, ReplicationError

_log = logging.getLogger(__name__)

#: Between looks at the whole catalog for rules of the policy that match nothing, in seconds.
_POLICY_SECONDS = 3600.0

Connection = TypeVar("Connection", bound=Database)
#: A checkpoint of the engine's kind.
C = TypeVar("C", bound=Checkpoint)


class Watch(ABC, Generic[Connection, C]):
    """Looks until stopped, and leaves what it finds in figures and outbox."""

    def __init__(
        self,
        config: EdgeFile,
        connect: Callable[[], Connection],
        checkpoint: Callable[[], C],
        figures: Figures,
        outbox: Outbox,
        left_out: Mapping[str, str],
    ) -> None:
        """`left_out`: by table, why the policy lets nothing of it leave, as the sessions find it."""
        self._config = config
        #: Returns a new connection; raises NotConnected or NeedsOperator.
        self._connect = connect
        self._checkpoint = checkpoint
        self._figures = figures
        self._outbox = outbox
        self._left_out = left_out
        self._policy_looked_at: float | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a look that hangs ends with the process."""
        self._stopped.set()
        self._thread.join(timeout=1.0)

    @abstractmethod
    def look(self, connection: Connection) -> None:
        """Look once."""

    @abstractmethod
    def policy_tables(self, connection: Connection) -> Iterable[PolicyTable]:
        """Return the tables that are captured but for the policy, with their columns."""

    def look_at_policy(self, connection: Connection) -> None:
        """Warn of tables that the policy leaves out, and now and then look for rules of it that match nothing."""
        self.warn("left out by policy", "; ".join(list(self._left_out.values())))
        now = time.monotonic()
        if self._policy_looked_at is None or now - self._policy_looked_at > _POLICY_SECONDS:
            policy = Policy.of(self._config)
            unused = policy.unused(self.policy_tables(connection)) if policy.has_rules else []
            self.warn("policy", unused_words(unused))
            self._policy_looked_at = now

    def warn(self, name: str, words: str) -> None:
        """Keep a warning among the figures while it holds, that is until `words` are empty, and log it when it begins."""
        if not words:
            self._figures.warned.pop(name, None)
        else:
            if name not in self._figures.warned:
                _log.warning("%s", words)
            self._figures.warned[name] = words

    def warn_of(self, retained: int) -> None:
        """Warn while the source keeps more log for this edge than the configuration allows without one, in bytes."""
        limit = self._config.limits.retained_wal_megabytes
        much = f"the source keeps {retained >> 20} MB of log for this edge, more than [limits] retained_wal_megabytes = {limit}"
        self.warn("retained", much if limit and retained >= limit << 20 else "")

    def _run(self) -> None:
        connection: Connection | None = None
        every = look_seconds(self._config)
        while not self._stopped.wait(every):
            try:
                connection = connection or self._connect()
                self.look(connection)
            except NeedsOperator as problem:
                self._outbox.fail(problem)
                break
            except ReplicationError as error:
                _log.debug("the look at the server failed: %s", error.message)
                if connection is not None:
                    connection.close()
                connection = None
        if connection is not None:
            connection.close()
