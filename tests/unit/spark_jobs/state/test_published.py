"""Versions of bronze are known by their commits (L37)."""

import json
from dataclasses import replace

import pytest

from spark_jobs.state import delta_log, published
from spark_jobs.state.published_rows import Published, Table, Unfinished

STATE = Published(
    stream="bank",
    load=4,
    bronze_version=2,
    bronze_commit="id-2",
    bronze_done=2,
    unfinished={"jakarta/bank": Unfinished(after=1, changes=3, upto="9")},
    tables={"public.t": Table(table="public.t", version=5, problem="stopped", bronze_after=1)},
)


@pytest.fixture
def bronze(tmp_path, monkeypatch):
    """A table of three versions, by the name of their commits."""
    monkeypatch.setattr(delta_log.storage, "is_local", lambda *_: True)
    (tmp_path / "_delta_log").mkdir()

    def write(name, versions=3):
        for version in range(versions):
            line = json.dumps({"commitInfo": {"operation": "WRITE", "txnId": f"{name}-{version}"}})
            (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(line)

    write("id")
    return write, tmp_path.as_uri()


def test_versions_of_the_bronze_that_was_read_are_known(bronze):
    assert published.known_versions(None, bronze[1], STATE) is STATE
    former = replace(STATE, bronze_commit=None)
    assert published.known_versions(None, bronze[1], former) is former


@pytest.mark.parametrize("state", [STATE, replace(STATE, bronze_version=3), replace(STATE, bronze_commit=None)])
def test_l37_nothing_is_known_of_bronze_that_is_another_table_or_an_older_copy(bronze, state, tmp_path):
    write, url = bronze
    if state == STATE:
        write("another")
    elif state.bronze_commit is None:
        for file in (tmp_path / "_delta_log").iterdir():
            file.unlink()
        write("another", 2)
    result = published.known_versions(None, url, state)
    # the rows and positions stay, and all of bronze is read from now on
    assert (result.load, result.bronze_version, result.bronze_done, result.unfinished) == (4, None, None, {})
    table = result.tables["public.t"]
    assert (table.version, table.problem, table.bronze_after) == (5, "stopped", None)
