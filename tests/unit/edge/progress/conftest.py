"""Fixtures: processes of an edge, one after the other, that spool; a disk that fails."""

import pytest

from tests.unit.edge.progress.disk import Disk
from tests.unit.edge.progress.spooling import Process


@pytest.fixture
def processes(tmp_path):
    made = []

    def make(**options):
        for former in made:
            former.spool.close()
        made.append(Process(tmp_path, **options))
        made[-1].start()
        return made[-1]

    yield make
    for each in made:
        each.spool.close()


@pytest.fixture
def disk(monkeypatch):
    with monkeypatch.context() as patch:
        yield Disk(patch)
