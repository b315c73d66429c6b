"""SnapshotOrdinals for rows that are put where the log has no transaction: at a place between two, and each only once.

At an idle server many chunks are put at one place, by one session after another, and a position that was sent may never mean
another row. So ordinals are taken from a range that is on disk before any of them is used, and a session begins behind what
the ones before it took. Assumes one edge for a state folder. Called by the chunk decoder.
"""

from pathlib import Path

import msgspec

from headrace import files
from headrace.errors import NeedsOperator
from headrace.formats import SNAPSHOT_PLACE
from headrace.position import Position

#: So many are taken beyond what is needed, so that the file is written seldom.
_AHEAD = 1 << 18
_MOST = 1 << 32


class _Taken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    place: int = -1
    #: The first ordinal that was never used there.
    free: int = 0
    version: int = SNAPSHOT_PLACE.version


class SnapshotOrdinals:
    """The ordinals of a state folder."""

    def __init__(self, folder: Path, *sent: Position) -> None:
        """Begin behind what was taken, and behind positions that were sent."""
        self._path = folder / "snapshot-place.json"
        self._taken = self._read()
        self._sent = sent
        self._place, self._next = -1, 0

    def take(self, place: int, count: int) -> int:
        """Return the first of so many ordinals at a place, none of them used before."""
        first = self._next
        if place != self._place:
            behind = [position.ordinal + 1 for position in self._sent if position.commit == place]
            first = max([self._taken.free if self._taken.place == place else 0, *behind])
        after = first + count
        if after > _MOST:
            raise NeedsOperator(
                f"more rows were copied at one place of the log, {place:016x}, than it has positions",
                hint="Let the source commit something; then start the edge again.",
            )
        if self._taken.place != place or after > self._taken.free:
            taken = _Taken(place, min(after + _AHEAD, _MOST))
            files.write_private(self._path, msgspec.json.encode(taken))
            self._taken = taken
        self._place, self._next = place, after
        return first

    def _read(self) -> _Taken:
        try:
            data = self._path.read_bytes()
            SNAPSHOT_PLACE.check_json(data, str(self._path))
            return msgspec.json.decode(data, type=_Taken)
        except FileNotFoundError:
            return _Taken()
        except OSError as error:
            raise files.problem(self._path, "read", error) from error
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise NeedsOperator(
                f"{self._path} is damaged",
                hint="Stop the edge, move the file to another folder, and start it when the source has committed something.",
            ) from error
