"""A source's made-up log, cut into batches any way."""

import json
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headrace.batch import Batch
from headrace.position import Position


class Row(NamedTuple):
    """A record of the made-up log."""

    position: Position
    key: bytes
    value: bytes


def log(
    source: str,
    count: int,
    *,
    epoch: int = 1_700_000_000,
    longest: int = 7,
    start: int = 0,
    seed: int = 1,
    pad: int = 0,
) -> list[Row]:
    """Return `count` records of transactions of random length, numbered from `start`."""
    chance = random.Random(seed)
    rows: list[Row] = []
    commit = 1000 + start * 100
    while len(rows) < count:
        commit += chance.randint(1, 99)
        for ordinal in range(min(chance.randint(1, longest), count - len(rows))):
            position = Position(epoch, commit, ordinal)
            number = start + len(rows)
            value = {
                "after": {"id": number, "note": "x" * pad},
                "source": {"name": source, "position": str(position)},
            }
            rows.append(Row(position, b'{"id":%d}' % number, json.dumps(value).encode()))
    return rows


def cut(source: str, rows: Sequence[Row], sizes: Callable[[], int], follows: Position | None = None) -> list[Batch]:
    """Return the rows as batches of `sizes()` records, chained to `follows`, by default the start of their epoch."""
    follows = follows or Position.start(rows[0].position.epoch)
    batches = []
    at = 0
    while at < len(rows):
        part = rows[at : at + sizes()]
        batches.append(of(source, part, follows))
        follows = part[-1].position
        at += len(part)
    return batches


def of(source: str, rows: Sequence[Row], follows: Position) -> Batch:
    """Return a batch of some rows; an empty one stands at `follows`."""
    segments: list[tuple[int, int, int]] = []
    for row in rows:
        commit, ordinal, count = segments[-1] if segments else (-1, 0, 0)
        if row.position.commit == commit and row.position.ordinal == ordinal + count:
            segments[-1] = (commit, ordinal, count + 1)
        else:
            segments.append((row.position.commit, row.position.ordinal, 1))
    return Batch(
        source=source,
        follows=follows,
        first=rows[0].position if rows else follows,
        last=rows[-1].position if rows else follows,
        segments=segments,
        keys=[row.key for row in rows],
        values=[row.value for row in rows],
        figures={"read_lsn": 1},
    )
