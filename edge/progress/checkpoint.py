"""The edge's own durable note of progress: one JSON file in the state folder.

Guarantees that after a crash the file is whole, old or new; that it never moves backward; that one edge at a time has the
folder. The edge writes it before it confirms to the slot, so the slot is never ahead of it, unless somebody else moved it.
"""

import contextlib
import fcntl
import os
from abc import ABCMeta, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, Literal, TypeVar

import msgspec

from headrace import files
from headrace.errors import CorruptInput, NeedsOperator
from headrace.formats import CHECKPOINT
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
        except (msgspec.MsgspecError, UnicodeDecodeError, CorruptInput) as error:
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
