"""What the log has of a table while a chunk of it was read: sans-I/O, and of no engine.

A chunk is put into the log's order at the watermark behind it. Every row that changed in the log between the
watermark ahead of the chunk and the one behind it is left out of it: that row's newer state is in the log. Where it does
so without all columns (large values that did not change), the row is read once more, in a later chunk. (Rows that moved to
another key are followed at any time, edge/snapshot/coordinator.py.) What concerns a table as a whole, a truncate or
another shape, drops the chunk. Called by an engine's decoder for each change of the table.
"""


class DedupWindow:
    """Open from a watermark to the next, again and again, while a table's snapshot runs."""

    def __init__(self) -> None:
        #: Keys, as records have them, of rows that changed.
        self._changed: set[bytes] = set()
        #: Those of them of which the log did not have all columns.
        self._partly: set[bytes] = set()
        #: Whether changes are noted.
        self.is_open = False
        #: Whether the table was emptied, and whether it was altered.
        self.truncated = False
        self.altered = False

    def open(self) -> None:
        """Start again at a watermark: what is noted from here on counts."""
        self._changed, self._partly = set(), set()
        self.truncated = self.altered = False
        self.is_open = True

    def close(self) -> None:
        """Note no more."""
        self.open()
        self.is_open = False

    def change(self, key: bytes, former: bytes | None = None, *, whole: bool = True) -> None:
        """Note a change of a row: its key, its former one when that is another, and whether the log had all columns."""
        if not self.is_open:
            return
        self._changed.add(key)
        if former is not None:
            self._changed.add(former)
        if not whole:
            self._partly.add(key)

    def truncate(self) -> None:
        """Note that the table was emptied: what a chunk read before is gone."""
        self.truncated = True

    def alter(self) -> None:
        """Note that the table has another shape: a chunk that was read before may not fit."""
        self.altered = True

    def keeps(self, key: bytes) -> bool:
        """Whether a chunk's row belongs into the log's order where the window ends."""
        return not self.truncated and key not in self._changed

    def must_reread(self, key: bytes) -> bool:
        """Whether a row that is left out has to be read once more."""
        return not self.truncated and key in self._partly
