"""Three rules for every run: in continuous integration nothing is skipped, no process outlives the session, and what it opened is
closed.

Where several workers share a run, each looks after what it started, and the run fails with it.
"""

import contextlib
import gc
import os
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.rules.waiting import eventually

_SESSION = "HEADRACE_TEST_SESSION"
#: Ended by themselves when Python does, because their standard input closes: PySpark's gateway, what that starts for functions in
#: Python, which a task that ends late may start once more, and multiprocessing's helper.
_END_WITH_PYTHON = ("pyspark-shell", "pyspark.daemon", "multiprocessing.resource_tracker")
#: How many descriptors more than at its beginning a session may end with: those of libraries, and two or three for each load in
#: this process, which Spark's threads keep until its JVM ends. From about a thousand on, `select` refuses them.
_MORE_DESCRIPTORS = 500
_descriptors = pytest.StashKey[int]()
_left_behind = pytest.StashKey[list[str]]()


def pytest_configure(config: pytest.Config) -> None:
    """Mark the environment, so that whatever the tests start can be distinguished from everything else; count what is open.

    A run within a run, as a worker's, adds its own mark: what a worker leaves that was killed is found by the run that it was of.
    """
    os.environ[_SESSION] = f"{os.environ.get(_SESSION, '')}/{uuid.uuid4().hex}"
    config.stash[_descriptors] = _open_descriptors().total()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Turn a skip or an expected failure into a failure in continuous integration."""
    return _failed_if_skipped((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[None]:
    """Turn a skipped module into a failure in continuous integration."""
    return _failed_if_skipped((yield))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the session if a process that it started still runs, and end that, or if it has left many descriptors open."""
    try:
        timeout = float(os.environ.get("HEADRACE_TEST_PATIENCE", "60"))
        eventually(lambda: not _started_here(), timeout, saying="no process is left")
    except AssertionError:
        left = _started_here()
        _note(session.config, [f"{process.pid}: {' '.join(_line(process))[:300]}" for process in left])
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    gc.collect()
    now = _open_descriptors()
    more = now.total() - session.config.stash[_descriptors]
    if more > _MORE_DESCRIPTORS:
        kinds = ", ".join(f"{count} {kind}" for kind, count in now.most_common(8))
        _note(session.config, [f"{more} descriptors more than at the beginning; open are: {kinds}"])
    if session.config.stash.get(_left_behind, []):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker found left behind."""
    _note(node.config, getattr(node, "workeroutput", {}).get(_SESSION, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what was left."""
    if left := config.stash.get(_left_behind, []):
        terminalreporter.section("left behind by the tests", red=True)
        for line in left:
            terminalreporter.line(line)


def _note(config: pytest.Config, left: list[str]) -> None:
    config.stash.setdefault(_left_behind, []).extend(left)
    if (output := getattr(config, "workeroutput", None)) is not None:
        output[_SESSION] = config.stash[_left_behind]


def _failed_if_skipped(report):
    if os.environ.get("CI") and (report.skipped or hasattr(report, "wasxfail")):
        reason = getattr(report, "wasxfail", None) or report.longrepr
        report.__dict__.pop("wasxfail", None)
        report.outcome = "failed"
        report.longrepr = f"skipped or expected to fail, which counts as a failure when CI is set: {reason}"
    return report


def _started_here() -> list[psutil.Process]:
    children = {process.pid for process in psutil.Process().children(recursive=True)}
    return [
        process
        for process in psutil.process_iter()
        if process.pid != os.getpid()
        and (process.pid in children or _is_marked(process))
        and not _is_dead(process)
        and not any(word in part for part in _line(process) for word in _END_WITH_PYTHON)
    ]


def _open_descriptors() -> Counter[str]:
    """Return how many descriptors this process has of each kind: `socket`, `pipe`, `anon_inode`, or a file's own name."""
    kinds: Counter[str] = Counter()
    for entry in os.scandir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):
            kinds[str(Path(entry.path).readlink()).partition(":[")[0]] += 1
    return kinds


def _is_marked(process: psutil.Process) -> bool:
    try:
        return process.environ().get(_SESSION, "").startswith(os.environ[_SESSION])
    except (psutil.Error, OSError):
        return False


def _is_dead(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _line(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
