"""The edge's own durable note of progress, one JSON file in the state folder, and when it is moved: often enough and not more.

Guarantees that after a crash the file is whole, old or new; that it never moves backward; that one edge at a time has the
folder. The edge writes it before it confirms to the slot, so the slot is never ahead of it, unless somebody else moved it.

Guarantees that `confirmed`, which may be confirmed to the source, is durable in the checkpoint, and so is what it relies on.
`Progress` is used by the capturing thread alone.
"""

import contextlib
import fcntl
import logging
import os
import time
from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import msgspec

from edge.delivery.outbox import Outbox
from headrace import files
from headrace.errors import CorruptInput, NeedsOperator, NoSpace
from headrace.formats import CHECKPOINT, UNREADABLE
from headrace.position import Position

_NAME = "checkpoint.json"
_LARGEST_ORDINAL = (1 << 32) - 1


class _Abstract(msgspec.StructMeta, ABCMeta):
    """Structs that leave something to those that inherit from them."""


class Checkpoint(msgspec.Struct, metaclass=_Abstract, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a source's changes are acknowledged; each engine adds in which log, and from where it is read again."""

    version: int = CHECKPOINT.version
    source: str
    #: `making` while `init` makes what the source needs, `made` from then on.
    stage: Literal["making", "made"]
    #: Text of the last position that the far side has acknowledged.
    acknowledged: str
    #: Text of the position up to which the spool has what is not acknowledged; empty while nothing depends on the spool.
    spooled: str = ""

    @property
    def position(self) -> Position:
        """The last acknowledged position."""
        return Position.parse(self.acknowledged)

    @property
    def promised(self) -> Position | None:
        """The position up to which the spool has to have what is not acknowledged; None when nothing depends on it."""
        return Position.parse(self.spooled) if self.spooled else None

    @property
    @abstractmethod
    def confirmed(self) -> int:
        """The place in the log below which everything is acknowledged or spooled, as a number: what the source may discard."""

    @property
    @abstractmethod
    def place(self) -> str:
        """The same place as the engine's own tools write it."""

    @property
    def tail(self) -> Position:
        """The position that the first batch follows when the log is read again from the confirmed place.

        What is read again commits at the confirmed place or after it. Where a part of that is acknowledged or spooled already,
        the tail is the last place before it, so that the chain holds and the far side drops what it has.
        """
        position = self.promised or self.position
        if position.commit < self.confirmed:
            return position
        return Position(position.epoch, self.confirmed - 1, _LARGEST_ORDINAL)

    def check(self) -> None:
        """Raise CorruptInput where a text of it is not what it has to be."""
        _ = self.position, self.promised, self.confirmed


C = TypeVar("C", bound=Checkpoint)


class State(Generic[C]):
    """The state folder: its checkpoint, of one engine's kind, and its lock."""

    def __init__(self, folder: Path, kind: type[C]) -> None:
        self._kind = kind
        self.folder = folder
        self.path = folder / _NAME

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the folder for this process, making it if need be; raise NeedsOperator when another has it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise NeedsOperator(
                f"state folder {self.folder} cannot be used: {error.strerror}",
                hint="Name a folder that the edge may write in [state] folder.",
            ) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise NeedsOperator(
                f"state folder {self.folder} is in use by another edge",
                hint="Stop the other edge, or give this one a folder of its own: one edge for each source.",
            ) from error
        try:
            yield
        finally:
            os.close(descriptor)

    def in_use(self) -> bool:
        """Return whether a process holds the folder; nothing is made."""
        try:
            descriptor = os.open(self.folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def read(self, source: str) -> C | None:
        """Return the checkpoint, or None when there is none.

        Raises NeedsOperator when it is damaged, of another source, or of a release whose files are not read.
        """
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise files.problem(self.path, "read", error) from error
        try:
            CHECKPOINT.check_json(data, f"checkpoint {self.path}")
            checkpoint = msgspec.json.decode(data, type=self._kind)
            checkpoint.check()
        except (CorruptInput, *UNREADABLE) as error:
            raise NeedsOperator(
                f"checkpoint {self.path} is damaged, or of another kind of database", hint=_REPAIR
            ) from error
        if checkpoint.source != source:
            raise NeedsOperator(
                f"checkpoint {self.path} is of source {checkpoint.source!r}, not of {source!r}",
                hint="Give each source a state folder of its own.",
            )
        return msgspec.structs.replace(checkpoint, version=CHECKPOINT.version)

    def write(self, checkpoint: Checkpoint) -> None:
        """Make the checkpoint durable: when this returns it survives a crash of the machine.

        Raises NoSpace when the disk takes nothing now, and NeedsOperator when it refuses otherwise.
        """
        files.write_private(self.path, msgspec.json.format(msgspec.json.encode(checkpoint)) + b"\n")


_REPAIR = (
    "Move it to another folder, take the source's position from 'headrace bridge positions', "
    "and run 'headrace edge init --adopt --position POSITION'."
)


_log = logging.getLogger(__name__)

#: Between two writes, in seconds: after changes were acknowledged, and when only idle log has passed.
_CHANGES_SECONDS, _IDLE_SECONDS = 0.2, 1.0
#: A slow disk gets at most one part in so many of the time; but after a single write that took long, as one next to a burst of
#: others does, the next is put off no longer than this, in seconds.
_SHARE, _LONGEST_SECONDS = 20, 5.0


class Progress:
    """The checkpoint in use, written when there is enough to write."""

    def __init__(
        self,
        state: State[Any],
        checkpoint: Checkpoint,
        outbox: Outbox,
        advanced: Callable[[Any, Position, int], Checkpoint],
    ) -> None:
        self._state = state
        self._outbox = outbox
        self._advanced = advanced
        self.checkpoint = checkpoint
        #: What may be confirmed to the source.
        self.confirmed = checkpoint.confirmed
        # Acknowledged and spooled, as they are in the checkpoint.
        self._positions = (checkpoint.position, checkpoint.promised or checkpoint.position)
        self._written_at = -_IDLE_SECONDS
        self._took = 0.0
        self._no_room = False

    def save(self, now: float) -> float | None:
        """Write the checkpoint if what is acknowledged or spooled moved and the last write is long enough ago.

        `now` is monotonic. Returns the seconds until a write that has to wait, None when nothing waits.
        """
        position, place, spooled = self._outbox.reached()
        if (position, spooled) == self._positions and place <= self.confirmed:
            return None
        pause = _IDLE_SECONDS if (position, spooled) == self._positions or self._no_room else _CHANGES_SECONDS
        wait = self._written_at + max(pause, min(_LONGEST_SECONDS, self._took * _SHARE)) - now
        if wait > 0:
            return wait
        try:
            self._write(position, place, spooled)
        except NoSpace as error:
            self._wait_for_room(error)
        return None

    def save_now(self) -> None:
        """Write the checkpoint if what is acknowledged or spooled moved; where the disk is full, leave it as it was."""
        try:
            self._save()
        except NoSpace as error:
            self._wait_for_room(error)

    def restart(self) -> Position:
        """Go back to what is acknowledged or spooled, write that, and return the position that the next batch follows.

        The log is then to be read again from the checkpoint's confirmed place. Raises NoSpace when the disk is full.
        """
        self._outbox.rewind()
        self._save()
        tail = self.checkpoint.tail
        self._outbox.restart(tail)
        return tail

    def replace(self, checkpoint: Checkpoint, *, until: int | None) -> None:
        """Write another checkpoint in place of this one, whose confirmed place may be a lower one.

        `until` is the place at which the former log was left, if it was. Raises NeedsOperator when batches from beyond it were
        sent: what became of them is not known here.
        """
        self._outbox.rewind()
        sent = self._outbox.sent
        if until is not None and sent.commit >= until:
            raise NeedsOperator(
                f"the former log was left at {until:016x}, and batches up to {sent} were sent: the far side may have changes "
                "that the server does not have any more",
                hint="Take the source's position from 'headrace bridge positions'. If the middle part of it is smaller than "
                f"{until:016x}, move the checkpoint to another folder and run 'headrace edge init --adopt --position POSITION'. "
                "Otherwise start a new epoch and copy again the tables that 'headrace verify' names.",
            )
        self._state.write(checkpoint)
        self.checkpoint, self.confirmed = checkpoint, checkpoint.confirmed
        self._outbox.confirm_from(checkpoint.confirmed)

    def _save(self) -> None:
        position, place, spooled = self._outbox.reached()
        if (position, spooled) != self._positions or place > self.confirmed:
            self._write(position, place, spooled)

    def _write(self, position: Position, place: int, spooled: Position) -> None:
        began = time.monotonic()
        advanced = msgspec.structs.replace(
            self._advanced(self.checkpoint, position, place), spooled=str(spooled) if spooled > position else ""
        )
        self._state.write(advanced)
        self._written_at = time.monotonic()
        self._took = self._written_at - began
        self.checkpoint, self.confirmed, self._positions = advanced, advanced.confirmed, (position, spooled)
        self._no_room = False
        self._outbox.saved(position)

    def _wait_for_room(self, error: NoSpace) -> None:
        """Confirm nothing to the source until there is space; what is read meanwhile is read again after a crash."""
        self._written_at = time.monotonic()
        if not self._no_room:
            self._no_room = True
            _log.warning("%s: the source keeps its log until there is space", error.message)
