"""How several workers share a run: the longest files first, and the tests of the lake's Spark sessions with two of them.

A session's first loads take several times as long as later ones, while the JVM compiles what they run, so there are few; and its
tests keep a core busy where most others wait, so the third worker takes what waits. One session alone would be the last to end.
"""

from collections.abc import Callable
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

#: Beginnings of paths below tests/.
_OF_SESSIONS = ("integration/lake/", "integration/verify/")
_LONGEST = (
    *(*_OF_SESSIONS, "end_to_end/", "integration/airflow/"),
    # Those of hostile/ wait for a minute each: the last one of all would wait alone.
    *("simulation/", "hostile/test_brokers.py", "hostile/test_slow_peers.py", "contract/", "integration/bridge/"),
)


class _Scheduling(LoadFileScheduling):
    """A file goes to one worker, and so do all files of a session of the lake, by their names."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.removeprefix("tests/")
        if not path.startswith(_OF_SESSIONS):
            return str(super()._split_scope(nodeid))
        return f"session {sum(path.partition('::')[0].encode()) % 2} of the lake"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Callable[..., Any]) -> LoadFileScheduling | None:
    """Return what gives tests to workers."""
    return _Scheduling(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first; within those and the others the order stays as it was shuffled."""
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    path = item.nodeid.removeprefix("tests/")
    return next((rank for rank, start in enumerate(_LONGEST) if path.startswith(start)), len(_LONGEST))
