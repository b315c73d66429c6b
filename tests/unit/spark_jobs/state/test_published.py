"""Versions of bronze are known by their commits (L37); and what is published is what was read of one commit."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest

from spark_jobs import storage
from spark_jobs.state import delta_log, publication, published
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
    # and what is held back stays so
    late = Unfinished(after=1, changes=3, upto="9", problem="late")
    held = published.without_versions(replace(STATE, unfinished=STATE.unfinished | {"london/bank": late}))
    assert held.unfinished == {"london/bank": replace(late, after=-1)}
    table = result.tables["public.t"]
    assert (table.version, table.problem, table.bronze_after) == (5, "stopped", None)


@pytest.fixture
def state_table(tmp_path, monkeypatch):
    """The log of what is published, in which each commit is a publication; and a lake that has it."""
    monkeypatch.setattr(delta_log.storage, "is_local", lambda *_: True)
    monkeypatch.setattr(delta_log, "is_table", lambda _, path: path.endswith("/state"))
    monkeypatch.setattr(published, "_read", {})
    # The row of each stream, as often as it has published.
    monkeypatch.setattr(storage, "read_rows", lambda _spark, _path, version, **_: commits[: version + 1])
    monkeypatch.setattr(published, "_parse", lambda _spark, _lake, rows: {each.stream: each for each in rows})
    log, commits = tmp_path / "state" / "_delta_log", []
    log.mkdir(parents=True)

    def publish(stream, load, attempt=""):
        note = delta_log.write(publication.NOTE, stream=stream, load=load, attempt=attempt)
        info = {"operation": "WRITE", "txnId": f"{stream}-{load}", "userMetadata": note}
        (log / f"{len(commits):020d}.json").write_text(json.dumps({"commitInfo": info}))
        commits.append(Published(stream=stream, load=load))
        return commits[-1]

    return publish, SimpleNamespace(root=tmp_path.as_uri())


@pytest.mark.parametrize("meanwhile", ["nothing", "a commit ahead", "a commit after", "one that is read", "two"])
def test_what_another_process_published_is_there_next_to_what_this_one_did(state_table, monkeypatch, meanwhile):
    # given two streams, and what was published of them last, in memory
    publish, lake = state_table
    publish("x", 1)
    publish("y", 1)
    before = published.latest(None, lake, "x")
    monkeypatch.setattr(publication.rows_of, "changed", lambda *_: {})
    monkeypatch.setattr(publication.schema_texts, "keep", lambda *_: None)

    def commit(_spark, _lake, done, _changed, attempt, *_):
        if meanwhile in {"a commit ahead", "two"}:
            publish("y", 2)
        publish("x", done.load, attempt)
        version = delta_log.version(None, published.path(lake))
        if meanwhile == "one that is read":
            # What follows publications in the same process looks at any moment.
            assert published.latest(None, lake, "x").load == done.load
        if meanwhile not in {"nothing", "a commit ahead"}:
            publish("y", 3)
        return version

    monkeypatch.setattr(publication, "_commit", commit)
    # when this process publishes one of them, and another process the other one
    publication.append(None, lake, before, before=before)
    # then both are as they were published
    theirs = {"nothing": 1, "a commit ahead": 2}.get(meanwhile, 3)
    assert {each.stream: each.load for each in published.latest_of_all(None, lake)} == {"x": 2, "y": theirs}


def test_a_state_is_of_the_commit_that_was_looked_at_whatever_another_thread_reads(state_table, monkeypatch):
    publish, lake = state_table
    publish("x", 1)
    publish("x", 2)

    class Overtaken(dict):
        """What a thread read, in which another one notes at once what it read of the commit before."""

        def __setitem__(self, path, value):
            super().__setitem__(path, ((0, "x-1"), {"x": Published(stream="x", load=1)}))

    monkeypatch.setattr(published, "_read", Overtaken())
    assert published.of_streams(None, lake)["x"].load == 2
