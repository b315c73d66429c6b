"""Loads and commands that die: before they publish, or killed with -9, JVM and all, behind any of their commits."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headrace.configuration.lake import LakeFile
from spark_jobs.state import published
from tests.rules.waiting import eventually


@contextmanager
def dying_before_it_publishes(lake: LakeFile) -> Iterator[None]:
    """Leave no trace in what is published of a load inside the block."""
    place = Path(published.path(lake))
    kept = place.with_name("kept")
    shutil.copytree(place, kept)
    yield
    shutil.rmtree(place)
    kept.rename(place)


def killed_when(lake: LakeFile, words: str, reached: Callable[[], bool], *, every: float = 0.003) -> bool:
    """Run a command of `headrace lake` and kill it as soon as something is there; return False where it ended well before."""
    process = start(lake, words)
    try:
        eventually(lambda: reached() or process.poll() is not None, 450, every=every)
    finally:
        # Of a command that has ended by itself nothing may be left to kill.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output = process.communicate()[0]
    assert process.returncode in {0, -signal.SIGKILL}, output
    return process.returncode != 0


def start(lake: LakeFile, words: str) -> "subprocess.Popen[str]":
    """Begin a command of `headrace lake` in a group of processes of its own."""
    command = [sys.executable, "-m", "headrace", "lake", *words.split(), "--config", str(lake.path)]
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, start_new_session=True, text=True, **streams)


def count_commits(lake: LakeFile) -> int:
    """Return how many commits the logs of all tables of a local lake have."""
    return sum(1 for _ in Path(lake.root).glob("**/_delta_log/*.json"))
