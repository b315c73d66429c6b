"""What a database engine gives the agent: sessions that read its log, and all else that depends on the engine.

An engine names where its log can be read again by a number that only grows, the *place*: an LSN, or a binlog's file number and
offset. Batches, window and progress know places and positions alone; the engine's checkpoint holds what its server needs besides.

`DecodedLog` and `ServerWatch` are what engines have in common. The watch looks at the server next to the log, every few seconds,
in a thread with a connection of its own. A look that fails is tried again at the next one; what only an operator can pass ends
the edge. Each engine defines what is looked at.
"""

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeVar

from edge.delivery.outbox import Outbox
from edge.observability.figures import Figures, look_seconds
from edge.progress.checkpoint import Checkpoint, State
from edge.records.batcher import Batcher
from edge.records.column_policy import Policy, PolicyTable, unused_words
from edge.snapshot.ports import Database, Source, Stream
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import EdgeFile
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.position import Position, new_epoch

_log = logging.getLogger(__name__)

#: Between looks at the whole catalog for rules of the policy that match nothing, in seconds.
_POLICY_SECONDS = 3600.0

Connection = TypeVar("Connection", bound=Database)
#: A checkpoint of the engine's kind.
C = TypeVar("C", bound=Checkpoint)


class LogTaken(NotConnected):
    """Somebody else reads the log in this source's place."""

    #: For how long that may pass by itself, in seconds: a server may not have noticed yet that a former connection is gone.
    may_last = 15.0

    def lasting(self) -> NeedsOperator:
        """Return the error to end with when that does not pass."""
        return NeedsOperator(self.message, hint="Stop the other edge that reads it.")


class StreamFailed(NotConnected):
    """The server failed to decode its log, and will fail again where that lies in the log."""

    def __init__(self, message: str, *, may_pass: bool) -> None:
        super().__init__(message)
        #: Whether it may pass by itself, as a full disk.
        self.may_pass = may_pass

    def lasting(self) -> NeedsOperator:
        """Return the error to end with when the server fails again and again at the same place."""
        return NeedsOperator(
            f"{self.message}, each time at the same place of its log",
            hint="The server's own log has its words, which may hold values of rows. Correct what fails: a row filter that "
            "cannot be computed for some row (alter publication), or a value above 1 GB as text, whose table has to leave the "
            "publication. Then start the edge again: nothing was skipped or confirmed.",
        )


class CheckpointChanged(Retryable):
    """The checkpoint has to be another one before the log is read, as after a failover."""

    def __init__(self, message: str, checkpoint: Checkpoint, *, until: int | None = None) -> None:
        super().__init__(message)
        #: The one to go on with; its confirmed place may be lower than before.
        self.checkpoint = checkpoint
        #: The place at which the former log was left: nothing from there on may have been sent. None where it is the same log.
        self.until = until


class Adoption(NamedTuple):
    """How to go on where the checkpoint is lost or no longer fits: at a position, or None for a new epoch."""

    position: Position | None

    @property
    def start(self) -> Position:
        """The position to go on after: the one given, or the start of a new epoch."""
        return Position.start(new_epoch()) if self.position is None else self.position

    @staticmethod
    def refused(state: State[Any]) -> NeedsOperator:
        """Return the error of a source whose checkpoint is there."""
        return NeedsOperator(
            f"there is a checkpoint in {state.path}, from which the source goes on: nothing is to be adopted",
            hint="Run 'headrace edge run'; or, if the checkpoint is wrong, move it out of the state folder first.",
        )


class Session(Protocol):
    """A connection that carries the log from the checkpoint on, decoded into a batcher."""

    #: The server's own number of this connection, so that the next session can end it; 0 for nothing.
    pid: int

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun whose end was not read yet."""

    @property
    def present(self) -> str:
        """GTID, or LSN of the commit, of the transaction that is being decoded; empty for none."""

    @property
    def passed(self) -> int:
        """The place up to which nothing of the source is still to be read, not within a transaction; 0 while unknown."""

    @property
    def replies_requested(self) -> int:
        """How often the server has requested a reply."""

    @property
    def frames(self) -> int:
        """How many signs of life there were: frames, keepalives included, or pieces of them, and looks at a process that runs."""

    def log_end(self) -> int:
        """Return the place where the log ends now, or ended at the session's start: nothing that was sent before is beyond it.

        Not asked where Debezium does not name it (edge/progress/notes.py).
        """

    def start(self, checkpoint: Any, batcher: Batcher, history: TableHistory | None = None) -> None:
        """Start the stream where the checkpoint is, which may have moved since the session was opened.

        `history`: what the tables were like before; None to keep none.
        """

    def snapshots(self) -> Source | None:
        """Return what snapshots read from, once the stream is started; None where the engine copies no rows next to its log."""

    def fileno(self) -> int:
        """Return the socket, to wait on."""

    def read(self, now_ms: int) -> int:
        """Decode what has arrived, up to a round of it, without blocking; return how much, 0 when nothing has."""

    def confirm(self, place: int, now_ms: int, *, wants_reply: bool = False) -> None:
        """Report to the server what it may discard, and that the edge is alive; `wants_reply`: and request a reply."""

    def flush(self, seconds: float) -> None:
        """Wait at most `seconds` until what was confirmed has left this machine."""

    def close(self) -> None:
        """Leave the server."""


class Retirement(Protocol):
    """What the server keeps for a source, looked at and not changed yet; a context that holds a connection."""

    #: Why changes may not have been sent; empty when all were.
    unsent: str
    #: What `carry_out` will do, a line each.
    steps: list[str]

    def __enter__(self) -> Self:
        """Return itself."""

    def __exit__(self, *_: object) -> None:
        """Leave the server."""

    def carry_out(self, report: Callable[[str], None]) -> None:
        """Remove it, and `report` what was removed; what is not there is no error."""


class SnapshotDecoder(Stream, Protocol):
    """A session's decoder, which chunks can be put into."""

    on_watermark: Callable[[bytes], None]

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun whose end was not read yet."""

    @property
    def present(self) -> str:
        """GTID, or LSN of the commit, of the transaction that is being decoded; empty for none."""


D = TypeVar("D", bound=SnapshotDecoder)


class DecodedLog(Generic[D]):
    """What the sessions of all engines have in common: the decoder that `start` makes, and snapshots next to it."""

    _decoder: D

    def snapshots(self) -> Self:
        """Return itself: what snapshots read from."""
        return self

    def stream(self, on_watermark: Callable[[bytes], None]) -> D:
        """Return the decoder, which calls `on_watermark` with the content of each watermark from here on."""
        self._decoder.on_watermark = on_watermark
        return self._decoder

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction has begun whose end was not read yet."""
        return self._decoder.in_transaction

    @property
    def present(self) -> str:
        """GTID, or LSN of the commit, of the transaction that is being decoded; empty for none."""
        return self._decoder.present


class Watch(Protocol):
    """A look at the server from next to the log, every few seconds."""

    def stop(self) -> None:
        """End it."""


class Engine(Protocol):
    """One source's engine, with its part of the configuration; lives as long as the agent."""

    #: The server's address, without any secret.
    address: str
    #: The state folder, whose checkpoint is of this engine's kind.
    state: State[Any]

    def open(self, checkpoint: Any, former_pid: int) -> Session:
        """Return a checked session that is not started yet; `former_pid` is that of the session before, 0 for none.

        Raises NeedsOperator, NotConnected, or LogTaken.
        """

    def advanced(self, checkpoint: Any, position: Position, place: int) -> Checkpoint:
        """Return the checkpoint moved to an acknowledged position and place, neither of them backward."""

    def watch(self, checkpoint: Callable[[], Any], figures: Figures, outbox: Outbox) -> Watch:
        """Start to look at the server; what is found goes into figures and outbox."""

    def initialise(self, checkpoint: Any, adoption: Adoption | None, report: Callable[[str], None]) -> Checkpoint:
        """Make, finish, or only verify what the source needs, and return its checkpoint, which is written."""

    def retirement(self, checkpoint: Any) -> Retirement:
        """Return what has to be removed from the server; raises NeedsOperator when it is in use or another server's."""

    def condition(self, table: str, keys: list[dict[str, Any]]) -> str:
        """Return a condition in SQL that is true of the rows of a table that have these keys, as records have keys.

        Raises NeedsOperator for a table that cannot be copied, and for keys that do not identify its rows.
        """

    def server_status(self, checkpoint: Any) -> dict[str, str | int | None]:
        """Return names and values of where the server is for this source."""


class ServerWatch(ABC, Generic[Connection, C]):
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
