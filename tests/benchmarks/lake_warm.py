"""A load of 1,000 changes in four tables, and one with nothing to do, by a running server and by a process of its own."""

import statistics
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import psutil
from rich.console import Console

from infra.local.server import free_port
from tests.benchmarks import lake_freshness
from tests.benchmarks.results import Result, compared
from tests.end_to_end.pipeline import command
from tests.rules.waiting import eventually

_EACH = 250
#: The first loads of a server compile what later ones run: each takes less than the one before, and a server runs for days.
_WARMING = 15


def measure(console: Console, lake: Path, stream: str, bootstrap: str, runs: int) -> list[Result]:
    """Return seconds from a command's start to its exit, CPU seconds, and seconds to what it publishes.

    `lake` is the file of a lake with this stream, in a folder of the stream's name.
    """
    served = lake.with_name(f"{lake.stem}-served.toml")
    connect, thrift = free_port(), free_port()
    served.write_text(
        f'{lake.read_text()}\n[serve]\nconnect = "127.0.0.1:{connect}"\nthrift = "127.0.0.1:{thrift}"\nloads = "run"\n'
    )
    feed, tick = lake_freshness.Feed(bootstrap, stream, _EACH), 0
    feed.begin()
    log = lake.with_name("serve.log")
    with log.open("w") as output:
        server = subprocess.Popen(command("lake", "serve", "--config", str(served)), stdout=output, stderr=output)
    try:
        eventually(lambda: "JDBC:" in log.read_text(), 240, saying="the server answers")
        times: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
        commits = lake.with_name(stream) / "state" / "_delta_log"
        for run in range(_WARMING + runs):
            for name, file in (("warm", served), ("cold", lake)):
                if name == "cold" and run < _WARMING:
                    continue
                tick += 1
                feed.tick(tick)
                for what in ("changes", "nothing"):
                    took = _time(command("lake", "load", stream, "--config", str(file)), server.pid, commits)
                    if run >= _WARMING:
                        times.setdefault((name, what), []).append(took)
                    console.print(
                        f"{name}, {what}: {took[0]:.2f} s, {took[1]:.1f} s of CPU, published after {took[2]:.1f} s"
                    )
    finally:
        server.terminate()
        server.wait(60)
    middle = {key: [statistics.median(column) for column in zip(*each, strict=True)] for key, each in times.items()}
    names = {"changes": f"{4 * _EACH:,} changes in four tables", "nothing": "nothing to do"}
    return [
        compared(f"{text}, by a running server{kind}", middle["warm", what][place], unit, middle["cold", what][place])
        for what, text in names.items()
        for place, (kind, unit) in enumerate(
            (("", "s, beside a process of its own"), (", CPU", "s"), (", until published", "s"))
        )
        if what == "changes" or place < 2
    ]


def _time(words: list[str], server: int, commits: Path) -> tuple[float, float, float]:
    """Return a command's seconds, those of CPU of it and of the server with their children, and those to the newest commit."""
    before, began, began_at = _cpu(server), time.monotonic(), time.time()
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    own = 0.0
    while process.poll() is None:
        own = max(own, _cpu(process.pid))
        time.sleep(0.02)
    took = time.monotonic() - began
    assert process.returncode == 0
    published = max((commit.stat().st_mtime for commit in commits.glob("*.json")), default=began_at)
    return took, own + _cpu(server) - before, published - began_at


def _cpu(pid: int) -> float:
    total = 0.0
    with suppress(psutil.Error):
        process = psutil.Process(pid)
        for each in (process, *process.children(recursive=True)):
            with suppress(psutil.Error):
                times = each.cpu_times()
                total += times.user + times.system
    return total
