"""How several workers share a run: the longest files first, and all tests of the lake's Spark session with one worker.

A session's first loads take several times as long as later ones, while the JVM compiles what they run, and its tests keep a core
busy where most others wait: one session, next to workers that wait, takes less time than one for each worker.
"""

from collections.abc import Callable
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

#: Beginnings of paths below tests/.
_OF_ONE_SESSION = ("integration/lake/", "integration/verify/")
_LONGEST = (
    *(*_OF_ONE_SESSION, "end_to_end/", "integration/airflow/"),
    *("simulation/", "contract/", "integration/bridge/"),
)


class _Scheduling(LoadFileScheduling):
    """A file goes to one worker, and so do all files of the lake's session."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.removeprefix("tests/")
        return "the lake's session" if path.startswith(_OF_ONE_SESSION) else super()._split_scope(nodeid)


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
