"""`--share-of-week`: of the tests that are marked `long`, those of today alone, so that a week of runs shows all of them.

A test's day follows from its name: it stays the same when others come or go, and all cases of one test have the same.
"""

import zlib
from datetime import UTC, datetime

import pytest

_DAYS = 7


def day_of(nodeid: str) -> int:
    """Return the day of the week, 0 to 6 from Monday on, on which a test runs."""
    return zlib.crc32(nodeid.partition("[")[0].encode()) % _DAYS


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption(
        "--share-of-week", action="store_true", help="run the tests marked `long` whose day is today (UTC)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave today's share of the long tests."""
    if not config.getoption("--share-of-week"):
        return
    today = datetime.now(UTC).weekday()
    chosen = [item for item in items if item.get_closest_marker("long") and day_of(item.nodeid) == today]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen
