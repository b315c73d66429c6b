"""Which rows of the spool are loaded, and up to which position the spool is relied on. Sans-I/O.

Rows are numbered in the order of the batches. Used by edge/delivery/window.py; the file is edge/progress/spool.py's.
"""

from collections import deque

from edge.delivery.in_flight import Entry
from headrace.position import Position


class SpoolCursor:
    """The newest row, the newest that was loaded, and what of the spool would not be read again from the log."""

    def __init__(self, tail: Position) -> None:
        self.newest_row = self.loaded_row = 0
        #: The last position for which the spool is relied on: its batches are not read again from the confirmed place.
        self.relied_on = tail
        # First commit and last position of the batches of the spool that would still be read again.
        self._read_again: deque[tuple[int, Position]] = deque()

    @property
    def unloaded(self) -> int:
        """How many batches are in the spool alone."""
        return self.newest_row - self.loaded_row

    def append(self, entry: Entry) -> None:
        """Note that an entry is durable in the spool's next row."""
        self.newest_row += 1
        entry.row = self.newest_row
        self._read_again.append((entry.batch.first.commit, entry.batch.last))

    def load(self, row: int) -> None:
        """Note that the next row is loaded."""
        if row != self.loaded_row + 1:
            raise ValueError(f"row {row} of the spool does not come after row {self.loaded_row}")
        self.loaded_row = row

    def rely(self, confirmable: int) -> None:
        """Rely on the batches that are not read again from a place that may be confirmed."""
        while self._read_again and self._read_again[0][0] < confirmable:
            self.relied_on = max(self.relied_on, self._read_again.popleft()[1])

    def rewind(self, newest_row: int) -> None:
        """Forget the rows behind this one, which the log is read again for."""
        self._read_again.clear()
        self.newest_row, self.loaded_row = newest_row, min(self.loaded_row, newest_row)
