"""What a change costs the edge's processor, from the log's bytes to a sealed batch: `python -m tests.benchmarks.decode`.

Run by hand while working on the decoder: no server, no socket, seconds. Rows are those of tests/benchmarks/orders.py, with full
replica identity. It counts this process's own processor time, by turns, and shows the middle of the rounds; a busy machine still
slows it down, so compare only what was measured side by side.
"""

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import click
from msgspec.structs import replace
from rich.console import Console
from rich.table import Table

from edge.postgres.pgoutput import Decoder
from edge.records.avro_records import AvroRecords
from edge.records.batcher import Batcher
from edge.records.cloud_events import CloudEvents
from headrace.configuration.edge import Records
from headrace.position import Position
from tests.unit.edge.postgres import messages
from tests.unit.edge.postgres.messages import INT4, INT8, NUMERIC, Column

_COLUMNS = [
    Column("id", INT8), Column("customer_id", INT4), Column("sku"), Column("quantity", INT4),
    Column("price", NUMERIC, modifier=(12 << 16 | 2) + 4), Column("status"), Column("note"), Column("placed_at", 1184),
]  # fmt: skip
_TABLE = messages.relation(*(column._replace(key=True) for column in _COLUMNS), table="orders", identity="f")
_PER_TRANSACTION = 50
_SOURCE = "jakarta/shop"


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
        self.keys, self.values, self._segments, self._times = [], [], [], []
        self._since, self._ordinal = 0, ordinal
        self._aim()


class _Round(NamedTuple):
    """What one log took: seconds, and bytes of its batches before and after zstd."""

    seconds: float
    raw: int
    sent: int


def _round(log: list[bytes], batcher: Batcher, records: Records) -> _Round:
    decoder = Decoder(
        source="jakarta/shop", database="shop", epoch=1, batcher=batcher, key_of=lambda _: ["id"], records=records
    )
    feed, started = decoder.feed, time.process_time()
    for message in log:
        feed(message, messages.NOW_MS)
    sealed = [*batcher.take(), *filter(None, [batcher.seal()])]
    seconds = time.process_time() - started
    return _Round(seconds, sum(batch.raw_bytes for batch in sealed), sum(len(batch.body) for batch in sealed))


def _batcher(records: Records) -> Batcher:
    return Batcher(
        source=_SOURCE,
        tail=Position.start(1),
        avro=AvroRecords() if records.format == "avro" else None,
        events=CloudEvents(_SOURCE) if records.cloudevents else None,
    )


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--changes", default=50_000, show_default=True, help="Changes in a round.")
@click.option("--rounds", default=5, show_default=True, help="Rounds, of which the middle one counts.")
@click.option("--avro", is_flag=True, help="[records] format = 'avro'.")
def decode(changes: int, rounds: int, *, avro: bool) -> None:
    """Measure and print."""
    logs = {
        "80/16/4 mix": _log(_mixed, changes),
        "insert": _log(_insert, changes),
        "update, whole old row": _log(_update, changes),
        "delete, whole old row": _log(_delete, changes),
    }
    plain = Records(format="avro" if avro else "json")
    events = replace(plain, cloudevents=True)
    figures_of: dict[str, list[tuple[_Round, _Round, _Round]]] = {name: [] for name in logs}
    for _ in range(rounds):
        for name, log in logs.items():
            alone = _round(log, _Dropping(source=_SOURCE, tail=Position.start(1)), plain)
            figures_of[name].append((alone, *(_round(log, _batcher(records), records) for records in (plain, events))))
    table = Table(title=f"Microseconds of processor time a change, middle of {rounds}, and its bytes")
    for column in (
        "change",
        "decode",
        "with batch and zstd",
        "as CloudEvents",
        "bytes",
        "zstd",
        "as CloudEvents",
        "zstd",
    ):
        table.add_column(column, justify="left" if column == "change" else "right")
    for name, figures in figures_of.items():
        kinds = list(zip(*figures, strict=True))
        middles = [statistics.median(each.seconds for each in kind) / changes * 1e6 for kind in kinds]
        sizes = [size / changes for kind in kinds[1:] for size in kind[0][1:]]
        table.add_row(name, *(f"{middle:.2f}" for middle in middles), *(f"{size:.1f}" for size in sizes))
    Console(width=120).print(table)


if __name__ == "__main__":
    decode()
