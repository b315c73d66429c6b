"""What a MariaDB or MySQL source's checkpoint holds in addition to its position: where the binlog is read again, and whose it is.

A place in a binlog is a file's number and an offset in it as one number, which grows as the log does (`number << 32 | offset`).
A server begins a new file once one is larger than `max_binlog_size`, 1 GiB at most. So only one transaction can begin ahead of
4 GiB and end behind it; but others that were committed together with it follow in the same file, and the log has offsets of 32
bits alone. From COUNTED on, places are no offsets: they count the transactions, of which each has two, its beginning and its end.
"""

import re
from collections import deque
from typing import Literal, NamedTuple, Self

import msgspec

from edge.mysql.events import Group
from edge.mysql.gtid import Gtids, MariadbGtids, MysqlGtids
from edge.progress.checkpoint import Checkpoint
from headrace.errors import CorruptInput
from headrace.position import Position

_NAME = re.compile(r"(.*)\.(\d{1,9})")
_LARGEST = 0xFFFFFFFF
#: The last offset of a file that is a place; behind it transactions are counted.
COUNTED = 0xFFFF0000


def place(file_number: int, offset: int) -> int:
    """Return the place as a number."""
    return file_number << 32 | min(offset, _LARGEST)


def split_name(file: str) -> tuple[str, int]:
    """Return the base name and the number of a binlog file; raise CorruptInput when it is none."""
    match = _NAME.fullmatch(file)
    if match is None:
        raise CorruptInput(f"{file[:60]!r} is no binlog file", hint="A binlog file looks like binlog.000042.")
    return match[1], int(match[2])


def file_name(base: str, number: int) -> str:
    """Return the name of a binlog file."""
    return f"{base}.{number:06}"


class MysqlCheckpoint(Checkpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a source's changes are acknowledged, and in which server and binlog that holds."""

    engine: Literal["mariadb", "mysql"]
    #: GTID set of everything acknowledged or spooled: the log is read again after it.
    gtids: str
    #: Binlog file and offset at which that set was complete on this server, or the beginning of a file ahead of that.
    file: str
    offset: int
    #: The server's number, and its own name for itself: MariaDB's `server_uid`, MySQL's `server_uuid`.
    server_id: int
    server: str

    @property
    def confirmed(self) -> int:
        """The confirmed place as a number."""
        return place(split_name(self.file)[1], self.offset)

    @property
    def place(self) -> str:
        """GTID set, file and offset."""
        return f"{self.gtids or 'the beginning'} ({self.file}:{self.offset})"

    @property
    def base(self) -> str:
        """The name of the binlog's files without their number."""
        return split_name(self.file)[0]

    @property
    def gtid_set(self) -> Gtids:
        """The GTID set as a value."""
        return MariadbGtids.parse(self.gtids) if self.engine == "mariadb" else MysqlGtids.parse(self.gtids)

    def check(self) -> None:
        """Raise CorruptInput where a text of it is not what it has to be."""
        super().check()
        _ = self.gtid_set
        if not 0 <= self.offset <= _LARGEST:
            raise CorruptInput(f"{self.offset} is no place in a binlog file")

    def advanced(self, position: Position, confirmed: int, gtids: Gtids) -> Self:
        """Return the checkpoint moved to a position and a place, neither of them backward, with the set of that place."""
        reached = max(confirmed, self.confirmed)
        return msgspec.structs.replace(
            self,
            acknowledged=str(max(position, self.position)),
            gtids=str(gtids),
            file=file_name(self.base, reached >> 32),
            offset=reached & 0xFFFFFFFF,
        )


class Mark(NamedTuple):
    """What a GTID set gains when everything below a place is read."""

    place: int
    group: Group


class GtidProgress:
    """The transactions that one session has read and the checkpoint does not include yet."""

    def __init__(self) -> None:
        #: Transactions that were read whole, oldest first: the decoder appends to it.
        self.marks: deque[Mark] = deque()
        # The greatest place that was requested, and the set that belongs to it; None before the first request.
        self._reached: tuple[int, Gtids] | None = None

    def restart(self) -> None:
        """Forget what was read: the log is read again from the checkpoint."""
        self.marks.clear()
        self._reached = None

    def advanced(self, checkpoint: MysqlCheckpoint, position: Position, place: int) -> MysqlCheckpoint:
        """Return the durable checkpoint moved to an acknowledged position and place."""
        marks = self.marks
        reached, gtids = self._reached or (checkpoint.confirmed, checkpoint.gtid_set)
        while marks and marks[0].place <= place:
            gtids = gtids.with_group(marks.popleft().group)
        # The set is that of the greatest place, so the place may not be a smaller one.
        reached = max(reached, place)
        self._reached = reached, gtids
        return checkpoint.advanced(position, reached, gtids)
