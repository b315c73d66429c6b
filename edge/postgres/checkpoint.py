"""What a PostgreSQL source's checkpoint holds in addition to its position: the LSN confirmed to the slot, and whose LSN it is."""

import re
from typing import Self

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

    @property
    def confirmed(self) -> int:
        """The confirmed LSN as a number."""
        return parse_lsn(self.confirmed_lsn)

    @property
    def place(self) -> str:
        """The confirmed LSN as text."""
        return self.confirmed_lsn

    def advanced(self, position: Position, confirmed: int, unseen: tuple[int, ...] = ()) -> Self:
        """Return the checkpoint moved to a position and a confirmed LSN, neither of them backward."""
        return msgspec.structs.replace(
            self,
            acknowledged=str(max(position, self.position)),
            confirmed_lsn=format_lsn(max(confirmed, self.confirmed)),
            unseen=unseen or msgspec.UNSET,
        )
