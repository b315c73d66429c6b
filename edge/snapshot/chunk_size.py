"""How many rows the next chunk has: as many as make up a few megabytes, by the width of those read last."""

#: Bounds, in rows. The upper one bounds how long a chunk holds up the stream behind it.
FEWEST, MOST = 100, 10_000
_FIRST = 1_000
#: A chunk is ended where it stands when it grows beyond so many times the aim.
_TOO_MUCH = 2


class ChunkSize:
    """The aim for a table's chunks, in bytes, and the number of rows that should meet it."""

    def __init__(self, aim_bytes: int) -> None:
        self._aim = aim_bytes
        #: Rows to ask for next.
        self.rows = _FIRST
        #: Bytes at which a chunk is ended, whatever was asked for.
        self.limit_bytes = aim_bytes * _TOO_MUCH

    def read(self, rows: int, size: int) -> None:
        """Note what the last chunk had."""
        if rows:
            fitting = self._aim * rows // max(1, size)
            # It grows step by step: rows that are narrow so far say nothing of those to come.
            self.rows = max(FEWEST, min(MOST, fitting, self.rows * 4))
