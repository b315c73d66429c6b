"""What a MariaDB or MySQL source's checkpoint holds besides its position: where the binlog is read again, and whose it is."""

from typing import Literal, Self

import msgspec

from edge.mysql.binlog_position import file_name, place, split_name
from edge.mysql.gtid import Gtids, MariadbGtids, MysqlGtids
from edge.progress.checkpoint import Checkpoint
from headrace.position import Position


class MysqlCheckpoint(Checkpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a source's changes are acknowledged, and in which server and binlog that holds."""

    engine: Literal["mariadb", "mysql"]
    #: GTID set of everything acknowledged or spooled: the log is read again after it.
    gtids: str
    #: Binlog file and offset at which that set was complete on this server.
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
