"""How much of bronze one load of silver reads: a backlog of any size is read in parts (L40)."""

import json

import pytest

from spark_jobs.bronze import increment
from spark_jobs.bronze.increment import Since
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Held, Progress


@pytest.fixture
def bronze(tmp_path, monkeypatch):
    """Return a function that makes a table's commits, of so many rows each, some with positions."""
    monkeypatch.setattr(increment.delta_log.storage, "is_local", lambda *_: True)
    monkeypatch.setattr(increment, "_MOST_ROWS", 100)
    log = tmp_path / "_delta_log"
    log.mkdir()

    def make(*commits):
        for version, (rows, positions) in enumerate(commits):
            note = offsets.note("bank", Progress(topics={"bank": Held()}, positions=positions))
            info = {"operationMetrics": {"numOutputRows": str(rows)}, "userMetadata": note}
            (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}, separators=(",", ":")))
        return tmp_path.as_uri()

    return make


def bounded(path, after, newest, *, reaches=False):
    return increment.bounded(None, path, None if after is None else Since(after), newest, reaches=reaches)


def test_l40_a_load_reads_versions_until_there_are_many_rows(bronze):
    path = bronze(*((40, None) for _ in range(6)))
    assert [bounded(path, after, 5) for after in (None, 1, 3, 4, 5)] == [1, 3, 5, 5, 5]
    # never beyond the version that is there for it
    assert bounded(path, None, 0) == 0


def test_l40_a_version_that_is_larger_is_read_alone_and_many_small_ones_are_not_read_at_once(bronze, monkeypatch):
    path = bronze((40, None), (900, None), (1, None), (1, None), (1, None))
    assert [bounded(path, after, 4) for after in (None, 0, 1)] == [0, 1, 4]
    monkeypatch.setattr(increment, "_MOST_COMMITS", 2)
    assert bounded(path, 1, 4) == 3


def test_l40_a_log_that_lacks_its_beginning_is_read_as_a_whole(bronze, tmp_path):
    path = bronze(*((90, None) for _ in range(4)))
    (tmp_path / "_delta_log" / f"{0:020d}.json").unlink()
    assert bounded(path, None, 3) == 3


def test_l40_where_tables_have_topics_a_part_ends_where_more_is_whole(bronze):
    first, two = {"jakarta/bank": "1"}, {"jakarta/bank": "2"}
    path = bronze((60, first), (60, first), (60, two), (60, two), (60, {"jakarta/bank": "3"}))
    assert [bounded(path, after, 4, reaches=True) for after in (None, 0, 2)] == [0, 2, 4]
