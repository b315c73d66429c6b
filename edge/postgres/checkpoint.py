"""What a PostgreSQL source's checkpoint holds in addition to its position: the LSN confirmed to the slot, and whose LSN it is."""

import re
from collections import deque

import msgspec

from edge.progress.checkpoint import Checkpoint
from headrace.errors import CorruptInput
from headrace.position import Position

_TEXT = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def format_lsn(lsn: int) -> str:
    """Return the LSN as PostgreSQL prints it: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def parse_lsn(text: str) -> int:
    """Return the LSN that a text names; raise CorruptInput when it is none."""
    match = _TEXT.fullmatch(text)
    if match is None:
        raise CorruptInput(f"{text[:40]!r} is no LSN", hint="An LSN looks like 16/B374D848.")
    return int(match[1], 16) << 32 | int(match[2], 16)


class LastCommit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of the commits that the slot sends, the last one below the confirmed LSN: none lies between the two."""

    #: Where its record ends; where no commit is known, an LSN behind which none lies.
    end_lsn: str
    #: Its time as the server sends it, in microseconds since 2000; 0 where no commit is known.
    time: int


class PostgresCheckpoint(Checkpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a source's changes are acknowledged, and in which server, slot and publication that holds."""

    #: LSN below which everything is acknowledged: what is confirmed to the slot.
    confirmed_lsn: str
    system_identifier: str
    timeline: int
    database: str
    slot: str
    publication: str
    #: A publication that was dropped and made again has another one.
    publication_oid: int
    #: Whether this timeline's server held back what its standbys lacked, so that nothing can have been sent that they lack.
    guarded: bool = False
    #: Transactions below the confirmed LSN that readers of the database may not see yet (edge/postgres/visibility.py); left out
    #: where there is none.
    unseen: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    #: What the server's log has to have still where the slot is behind; left out where a release before 0.2 wrote the checkpoint.
    last_commit: LastCommit | msgspec.UnsetType = msgspec.UNSET

    @property
    def confirmed(self) -> int:
        """The confirmed LSN as a number."""
        return parse_lsn(self.confirmed_lsn)

    @property
    def place(self) -> str:
        """The confirmed LSN as text."""
        return self.confirmed_lsn


#: Commits that are kept until they are below the confirmed LSN: beyond that the oldest are forgotten.
_MOST = 10_000


class Commits:
    """What one session has read of the log: where commits end, and their times."""

    def __init__(self) -> None:
        #: Those that the checkpoint does not have yet, oldest first: the decoder appends to it.
        self.read: deque[tuple[int, int]] = deque(maxlen=_MOST)
        # The greatest place that was requested, and the last commit below it; None before there is one.
        self._reached = 0
        self._last: LastCommit | None = None
        # Whose log that is, after the first request: its server and timeline.
        self._log: tuple[str, int] | None = None

    def restart(self) -> None:
        """Forget what was read: the log is read again from the checkpoint."""
        self.read.clear()
        self._reached, self._last = 0, None

    def advanced(
        self, checkpoint: PostgresCheckpoint, position: Position, place: int, unseen: tuple[int, ...] = ()
    ) -> PostgresCheckpoint:
        """Return the durable checkpoint moved to an acknowledged position and LSN, neither of them backward."""
        log, read = (checkpoint.system_identifier, checkpoint.timeline), self.read
        if self._log not in {None, log}:
            # Of the former log, whose places may be beyond what the checkpoint of this one confirms.
            self.restart()
        self._log = log
        reached = self._reached = max(self._reached, place, checkpoint.confirmed)
        if len(read) == _MOST and read[0][0] > reached:
            # Which ones were forgotten is not known.
            self._last = LastCommit(format_lsn(reached), 0)
        while read and read[0][0] <= reached:
            self._last = LastCommit(format_lsn(read[0][0]), read.popleft()[1])
        return msgspec.structs.replace(
            checkpoint,
            acknowledged=str(max(position, checkpoint.position)),
            confirmed_lsn=format_lsn(reached),
            unseen=unseen or msgspec.UNSET,
            last_commit=self._last or checkpoint.last_commit or LastCommit(checkpoint.confirmed_lsn, 0),
        )
