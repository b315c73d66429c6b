"""What a change costs the edge's processor, from the log's bytes to a sealed batch: `python -m tests.benchmarks.decode`.

Run by hand while working on the decoder: no server, no socket, seconds. Rows are those of tests/benchmarks/orders.py, with full
replica identity. It counts this process's own processor time, by turns, and shows the middle of the rounds; a busy machine still
slows it down, so compare only what was measured side by side.
"""

import statistics
import time
from collections.abc import Callable

import click
from rich.console import Console
from rich.table import Table

from edge.postgres.pgoutput import Decoder
from edge.records.batcher import Batcher
from headrace.position import Position
from tests.unit.edge.postgres import messages
from tests.unit.edge.postgres.messages import INT4, INT8, NUMERIC, Column

_COLUMNS = [
    Column("id", INT8), Column("customer_id", INT4), Column("sku"), Column("quantity", INT4),
    Column("price", NUMERIC, modifier=(12 << 16 | 2) + 4), Column("status"), Column("note"), Column("placed_at", 1184),
]  # fmt: skip
_TABLE = messages.relation(*(column._replace(key=True) for column in _COLUMNS), table="orders", identity="f")
_PER_TRANSACTION = 50


def _row(number: int, status: str) -> tuple[messages.Value, ...]:
    note = f"to be delivered between nine and five, ring twice, floor {number % 10}"
    if number % 10 < 2:
        note = None if number % 10 else f'said "leave it at the door"\n{number}'
    price, sku = f"{number % 100_000 / 100:.2f}", f"SKU-{number * 7919 % 100_000:06}"
    return (
        number,
        number % 9973,
        sku,
        1 + number % 9,
        price,
        status,
        note,
        f"2026-01-31 09:15:00.{number % 10**6:06}+00",
    )


def _insert(number: int) -> bytes:
    return messages.insert(*_row(number, "placed"))


def _update(number: int) -> bytes:
    return messages.update(_row(number, "shipped"), old=_row(number, "placed"))


def _delete(number: int) -> bytes:
    return messages.delete(old=_row(number, "shipped"))


def _mixed(number: int) -> bytes:
    place = number % _PER_TRANSACTION
    return (_insert if place < 40 else _update if place < 48 else _delete)(number)


def _log(change: Callable[[int], bytes], changes: int) -> list[bytes]:
    log = [messages.begin(1), _TABLE, messages.commit(1, 2)]
    for first in range(0, changes, _PER_TRANSACTION):
        at = 10 * first + 10
        log.append(messages.begin(at))
        log += [change(number) for number in range(first, first + _PER_TRANSACTION)]
        log.append(messages.commit(at, at + 5))
    return log


class _Dropping(Batcher):
    """Takes records and makes no batch of them: what is left is the decoder's own cost."""

    def cut(self, ordinal: int) -> None:
        self.keys, self.values, self._segments = [], [], []
        self._since, self._ordinal = 0, ordinal
        self._aim()


def _seconds(log: list[bytes], batcher: Batcher) -> float:
    decoder = Decoder(source="jakarta/shop", database="shop", epoch=1, batcher=batcher, key_of=lambda _: ["id"])
    feed, started = decoder.feed, time.process_time()
    for message in log:
        feed(message, messages.NOW_MS)
    batcher.take()
    batcher.seal()
    return time.process_time() - started


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--changes", default=50_000, show_default=True, help="Changes in a round.")
@click.option("--rounds", default=5, show_default=True, help="Rounds, of which the middle one counts.")
def decode(changes: int, rounds: int) -> None:
    """Measure and print."""
    logs = {
        "80/16/4 mix": _log(_mixed, changes),
        "insert": _log(_insert, changes),
        "update, whole old row": _log(_update, changes),
        "delete, whole old row": _log(_delete, changes),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in logs}
    tail = Position.start(1)
    for _ in range(rounds):
        for name, log in logs.items():
            alone = _seconds(log, _Dropping(source="jakarta/shop", tail=tail))
            found[name].append((alone, _seconds(log, Batcher(source="jakarta/shop", tail=tail))))
    table = Table(title=f"Microseconds of processor time a change, middle of {rounds}")
    for column in ("change", "decode", "with batch and zstd"):
        table.add_column(column, justify="left" if column == "change" else "right")
    for name, figures in found.items():
        middles = (statistics.median(column) / changes * 1e6 for column in zip(*figures, strict=True))
        table.add_row(name, *(f"{middle:.2f}" for middle in middles))
    Console().print(table)


if __name__ == "__main__":
    decode()
