"""A table's log as years of commits and maintenance leave it: the commits of the days for which it is kept, their checkpoints.

What the table holds stays as it is: the commits of the past have no files of their own. Of what Delta and Hadoop write beside
each commit on files there is a file of the same name, since listings have it; what nobody reads is linked to one file.
"""

import json
import os
import re
from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

_COMMIT = re.compile(r"(\d{20})\.json")
#: Links that a file system allows of one file.
_LINKS = 50_000
_DAY = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True)
class Past:
    """The commits that a table's log has."""

    #: Version of the newest one, and when it was made, in milliseconds since 1970.
    newest: int
    at: int
    #: Commits that are kept, and seconds between two.
    kept: int
    every: float
    #: Commits between two checkpoints.
    interval: int = 50
    #: Files that the checkpoints name in addition to those that are there: large ones of long ago, and replaced ones.
    files: int = 0
    removed: int = 0


class Links:
    """Makes files of the same content as links to one."""

    def __init__(self, content: bytes) -> None:
        """Take what each file has."""
        self._content, self._made = content, count()
        self._first: Path | None = None

    def make(self, path: Path) -> None:
        """Make a file."""
        if self._first is None or next(self._made) % _LINKS == 0:
            path.write_bytes(self._content)
            self._first = path
        else:
            os.link(self._first, path)


def newest_of(log: Path) -> int:
    """Return the newest version of a log."""
    return max(int(match[1]) for file in log.iterdir() if (match := _COMMIT.fullmatch(file.name)))


def lengthen(table: Path, past: Past, **more: Any) -> None:
    """Put a past in the place of a table's log, which has a checkpoint of its newest version.

    Each commit says of itself what the newest one does, and `more`.
    """
    log = table / "_delta_log"
    version = newest_of(log)
    own = _info(log / f"{version:020d}.json") | more
    checkpoint = _extended(pq.read_table(log / f"{version:020d}.checkpoint.parquet"), past)
    checksum = _checksum(log / f"{version:020d}.crc", past)
    for file in log.iterdir():
        if file.is_file():
            file.unlink()
    nothing, sums, whole = Links(b""), Links(checksum), Links(checkpoint)
    last = past.newest - past.newest % past.interval
    # Delta removes no commit since the last checkpoint.
    for number in range(min(past.newest - past.kept + 1, last), past.newest + 1):
        at = past.at - int((past.newest - number) * past.every * 1000)
        info = own | {"timestamp": at, "txnId": f"of {number}"}
        (log / f"{number:020d}.json").write_text(json.dumps({"commitInfo": info}, separators=(",", ":")) + "\n")
        # Maintenance removes those of more than a day ago.
        if number > past.newest - _DAY / past.every or number > past.newest - 10:
            sums.make(log / f"{number:020d}.crc")
            nothing.make(log / f".{number:020d}.crc.crc")
        if number % past.interval == 0:
            whole.make(log / f"{number:020d}.checkpoint.parquet")
    hint = {"version": last, "size": past.files + past.removed + 10}
    (log / "_last_checkpoint").write_text(json.dumps(hint))


def _info(commit: Path) -> dict[str, Any]:
    lines: Iterable[str] = commit.read_text(encoding="utf-8").splitlines()
    return dict(next(json.loads(line)["commitInfo"] for line in lines if '"commitInfo"' in line))


def _extended(table: pa.Table, past: Past) -> bytes:
    """Return a checkpoint with the files of the past."""
    rows = table.to_pylist()
    add = next((row["add"] for row in rows if row["add"]), None)
    more: list[dict[str, Any]] = []
    if add is not None:
        more += [{"add": deepcopy(add) | {"path": f"of-the-past-{n}.parquet"}} for n in range(past.files)]
        names = table.schema.field("remove").type.names
        gone = {
            name: {"path": "", "deletionTimestamp": past.at, "dataChange": False, "size": 1}.get(name) for name in names
        }
        more += [{"remove": gone | {"path": f"replaced-{n}.parquet"}} for n in range(past.removed)]
    extended = pa.concat_tables([table, pa.Table.from_pylist(more, schema=table.schema)]) if more else table
    buffer = pa.BufferOutputStream()
    pq.write_table(extended, buffer)
    return bytes(buffer.getvalue())


def _checksum(file: Path, past: Past) -> bytes:
    if not file.exists():
        return b""
    sums = json.loads(file.read_text())
    for name in ("allFiles", "fileSizeHistogram", "histogramOpt", "deletedRecordCountsHistogram"):
        sums.pop(name, None)
    return json.dumps(sums | {"numFiles": sums["numFiles"] + past.files}).encode()
