"""The order of a run that several workers share: the longest files first, so that none is left alone with one at the end."""

import pytest

#: Beginnings of paths below tests/.
_LONGEST = (
    *("end_to_end/", "integration/airflow/", "integration/lake/", "integration/verify/"),
    *("simulation/", "contract/", "integration/bridge/"),
)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest first; within those and the others the order stays as it was shuffled."""
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    path = item.nodeid.removeprefix("tests/")
    return next((rank for rank, start in enumerate(_LONGEST) if path.startswith(start)), len(_LONGEST))
