"""Distance: which share of a wide-area link the interconnect fills, beside one plain TCP stream over the same link.

The link is emulated packet by packet (wan.py); at its ends are the edge's sender, with batches of noise ready, and the bridge's
receiver, which settles as a bridge does that commits every 40 ms. The share is of the link's bandwidth less TCP's and IP's
headers, after the seconds in which TCP finds out how much there is.
"""

import json
import shlex
import subprocess
import sys

from rich.console import Console
from rich.table import Table

from tests.benchmarks.results import Result, compared
from tests.benchmarks.wan import Link

#: Seconds until TCP has found the link's bandwidth, and those that count.
_WARM, _COUNTED = 5, 6
#: What of a packet of 1500 bytes is neither IP nor TCP.
_PAYLOAD = 1448 / 1500
DEFAULT_CREDIT = 256

_WIDE = Link(megabits=200, send_megabytes=32, receive_megabytes=32)
CASES = (
    (Link(megabits=10), DEFAULT_CREDIT),
    (Link(megabits=50), DEFAULT_CREDIT),
    (Link(megabits=100), DEFAULT_CREDIT),
    (Link(megabits=100, jitter_ms=20), DEFAULT_CREDIT),
    (Link(megabits=50, loss=0.001), DEFAULT_CREDIT),
    (Link(megabits=50, loss=0.01), DEFAULT_CREDIT),
    (_WIDE, 64),
    (_WIDE, 128),
    (_WIDE, DEFAULT_CREDIT),
)


def measure(console: Console) -> list[Result]:
    """Return bytes a second over each link beside those of plain TCP, and print them with the share of the link."""
    table = Table(title="Share of a link's bandwidth, round trip of 200 ms")
    for column in ("Mbit/s", "jitter", "loss", "credit", "TCP buffers", "ours MB/s", "share", "TCP MB/s", "share"):
        table.add_column(column, justify="right")
    results = []
    for link, credit in CASES:
        name = f"{link.megabits:g} Mbit/s, {link.round_trip_ms:g} ms"
        with console.status(f"{name}, credit {credit}"):
            ours, plain = (_run(kind, link, credit) for kind in ("amqp", "tcp"))
        most = link.megabits / 8 * _PAYLOAD
        table.add_row(
            f"{link.megabits:g}",
            f"{link.jitter_ms:g} ms" if link.jitter_ms else "-",
            f"{link.loss:.1%}" if link.loss else "-",
            str(credit),
            f"{link.send_megabytes}, {link.receive_megabytes} MB",
            f"{ours:.2f}",
            f"{ours / most:.2f}",
            f"{plain:.2f}",
            f"{plain / most:.2f}",
        )
        more = f", loss {link.loss:.1%}" * bool(link.loss) + f", jitter {link.jitter_ms:g} ms" * bool(link.jitter_ms)
        results.append(compared(f"distance, {name}{more}, credit {credit}: beside TCP", ours, "MB/s", plain))
        results.append(Result(f"distance, {name}{more}, credit {credit}: share", round(ours / most, 3), "of the link"))
    console.print(table)
    return results


def _run(kind: str, link: Link, credit: int) -> float:
    """Return megabytes a second, after warming up."""
    seconds = _WARM + _COUNTED
    ends = [
        shlex.join([sys.executable, "-m", "tests.benchmarks.wan_ends", kind, end, str(seconds), str(credit)])
        for end in ("near", "far")
    ]
    done = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.wan", link.argument(), *ends],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
        text=True,
        check=True,
    )
    return sum(json.loads(done.stdout)[_WARM:]) / _COUNTED / 1_000_000
