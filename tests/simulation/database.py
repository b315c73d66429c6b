"""A simulated database and the edge's engine for it: transactions in a log, a slot, lost sessions, a changed checkpoint, a
failover.

Makes real agents of the edge run: everything of theirs but the decoder, the driver and AMQP is the real code.
"""

import zlib
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from edge.engine import CheckpointChanged
from edge.progress.checkpoint import Checkpoint, State
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position
from tests.simulation.polling import Pipe
from tests.simulation.scheduler import Scheduler


class SimulatedCheckpoint(Checkpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """As PostgreSQL's."""

    at: int
    timeline: int = 1
    guarded: bool = True

    @property
    def confirmed(self) -> int:
        return self.at

    @property
    def place(self) -> str:
        return str(self.at)


class Transaction(NamedTuple):
    """A committed transaction."""

    commit: int
    end: int
    rows: int


class Database:
    """One source's database."""

    def __init__(self, scheduler: Scheduler, source: str, epoch: int) -> None:
        self.scheduler, self.source, self.epoch = scheduler, source, epoch
        self.log: list[Transaction] = []
        self.end = 100
        self.timeline, self.left = 1, 0
        self.guarded = True
        #: What the slot has confirmed: nothing below is there any more.
        self.slot = 100
        self.down_until = 0.0
        #: The greatest place that any session has read.
        self.read_up_to = 0
        self.sessions: list[Session] = []
        self.padding = 0
        #: What puts changes into Avro.
        self.avro: Any = None

    def write(self, rows: int) -> None:
        """Commit a transaction."""
        random = self.scheduler.random
        commit = self.end + random.randrange(1, 50)
        self.end = commit + random.randrange(1, 20)
        self.log.append(Transaction(commit, self.end, rows))
        for session in self.sessions:
            session.pipe.raise_()

    def idle(self) -> None:
        """Let the log grow without a change of this source."""
        self.end += self.scheduler.random.randrange(1, 500)
        for session in self.sessions:
            session.pipe.raise_()

    def drop_sessions(self) -> None:
        """Lose all connections."""
        for session in self.sessions:
            session.lost = True
            session.pipe.raise_()

    def fail_over(self) -> None:
        """Promote a standby, which has at least all that was sent; what it lacks was never anywhere else."""
        fork = self.end if self.scheduler.random.random() < 0.5 else max(self.read_up_to, self.slot) + 1
        self.scheduler.trace(f"{self.source} fails over at {fork}, its end was {self.end}")
        self.log = [each for each in self.log if each.end <= fork]
        self.end = max(fork, self.log[-1].end if self.log else fork) + 10
        self.timeline, self.left = self.timeline + 1, fork
        self.guarded = True
        self.drop_sessions()

    def changes(self) -> list[Position]:
        """Return the position of every change, in order."""
        return [Position(self.epoch, each.commit, ordinal) for each in self.log for ordinal in range(each.rows)]

    def record(self, position: Position) -> tuple[bytes, bytes]:
        """Return the key and the value of a change, which no other change of any source has."""
        name, at = self.source.encode(), str(position).encode()
        row = b"%x" % zlib.crc32(name + at) * (1 + position.ordinal % 7)
        value = b'{"source":{"name":"%s","position":"%s"},"row":"%s","pad":"%s"}'
        return b"%d" % (position.ordinal % 3), value % (name, at, row, b"x" * self.padding)


class Session:
    """Implements edge.engine.Session."""

    pid = 0
    replies_requested = 0

    def __init__(self, database: Database) -> None:
        self._database = database
        self.pipe = Pipe()
        self.fileno = self.pipe.fileno
        self.lost = False
        self.frames = 0
        self.in_transaction = False
        self.passed = 0
        database.sessions.append(self)

    def start(self, checkpoint: Any, batcher: Any, _history: Any = None) -> None:
        """Read what commits at the confirmed place or after it."""
        database = self._database
        if checkpoint.confirmed < database.slot:
            raise NeedsOperator(
                f"slot at {database.slot} is ahead of the checkpoint {checkpoint.confirmed}: changes are lost"
            )
        self._batcher = batcher
        batcher.avro = database.avro
        self._next = next(
            (n for n, each in enumerate(database.log) if each.commit >= checkpoint.confirmed), len(database.log)
        )
        self._row = 0
        self.pipe.raise_()

    def log_end(self) -> int:
        """Return where the log ends."""
        return self._database.end

    def snapshots(self) -> Any:
        """No snapshots here."""
        return SimpleNamespace(reader=None, stream=lambda _marked: None)

    def read(self, now_ms: int) -> int:
        """Decode up to a round of what there is."""
        database, random, batcher = self._database, self._database.scheduler.random, self._batcher
        database.scheduler.point()
        if self.lost or database.scheduler.now < database.down_until:
            raise NotConnected("the database is gone")
        self.frames += 1
        done, most = 0, random.choice((1, 3, 20, 200))
        while done < most and self._next < len(database.log):
            each = database.log[self._next]
            database.read_up_to = max(database.read_up_to, each.end)
            if not self.in_transaction:
                batcher.begin(each.commit, now_ms)
                self.in_transaction, self._row = True, 0
            while self._row < each.rows and done < most:
                if batcher.free_bytes < 0 and batcher.values:
                    batcher.cut(self._row)
                key, value = database.record(Position(database.epoch, each.commit, self._row))
                batcher.keys.append(key)
                batcher.values.append(value)
                batcher.free_bytes -= len(value)
                self._row += 1
                done += 1
            if self._row == each.rows:
                batcher.commit(each.end)
                self.in_transaction = False
                self._next += 1
        if self._next >= len(database.log) and not self.in_transaction:
            self.passed = database.end
            database.read_up_to = max(database.read_up_to, database.end)
            if not done:
                self.pipe.lower()
        return done

    def confirm(self, place: int, now_ms: int, *, wants_reply: bool = False) -> None:
        """The source may discard what is below the place."""
        if not self.lost:
            self._database.slot = max(self._database.slot, place)

    def flush(self, seconds: float) -> None:
        """Sent at once."""

    def close(self) -> None:
        """Leave."""
        if self in self._database.sessions:
            self._database.sessions.remove(self)


class Engine:
    """Implements edge.engine.Engine."""

    def __init__(self, database: Database, folder: Any) -> None:
        self._database = database
        self.address = f"simulated {database.source}"
        self.state = State(folder, SimulatedCheckpoint)

    def open(self, checkpoint: SimulatedCheckpoint, former_pid: int) -> Session:
        """Return a session; the checkpoint may have to change first."""
        database = self._database
        database.scheduler.sleep(database.scheduler.random.random() * 0.05)
        if database.scheduler.now < database.down_until:
            raise NotConnected("the database cannot be reached")
        replace: Callable[..., Any] = msgspec.structs.replace
        if database.timeline != checkpoint.timeline:
            captured = checkpoint.promised or checkpoint.position
            if captured.commit >= database.left:
                raise NeedsOperator(f"captured {captured} beyond {database.left}, where the timeline was left")
            confirmed = min(checkpoint.confirmed, database.left)
            database.slot = min(database.slot, confirmed)
            raise CheckpointChanged(
                "another timeline",
                replace(checkpoint, timeline=database.timeline, at=confirmed, guarded=database.guarded),
                until=database.left,
            )
        if database.guarded != checkpoint.guarded:
            raise CheckpointChanged("guarded or not", replace(checkpoint, guarded=database.guarded))
        return Session(database)

    def advanced(self, checkpoint: SimulatedCheckpoint, position: Position, place: int) -> SimulatedCheckpoint:
        """Return the checkpoint moved."""
        moved: SimulatedCheckpoint = msgspec.structs.replace(
            checkpoint, acknowledged=str(max(position, checkpoint.position)), at=max(place, checkpoint.at)
        )
        return moved

    def watch(self, checkpoint: Any, figures: Any, outbox: Any) -> Any:
        """Look at nothing."""
        return SimpleNamespace(stop=lambda: None)
