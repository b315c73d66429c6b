"""Scratch folders by their names (L30: one was never removed on an object store, or lost while in use); rows of own tables."""

import json
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.configuration.lake import local_path
from spark_jobs import storage

NOW = datetime(2026, 1, 31, 9, 15, tzinfo=UTC)


def test_folders_go_by_the_time_in_their_names():
    for days, abandoned in ((0, False), (2, False), (4, True)):
        folder = storage.new_scratch_name(NOW - timedelta(days=days))
        # An object store says "now" of every folder, a local disk when the folder got its last entry.
        assert storage.is_abandoned(folder, NOW, NOW) is abandoned
        assert storage.is_abandoned(folder, NOW - timedelta(days=400), NOW) is abandoned


def test_folders_of_an_earlier_release_go_by_when_they_were_modified():
    old = "0123456789abcdef0123456789abcdef"
    assert not storage.is_abandoned(old, NOW - timedelta(hours=1), NOW)
    assert storage.is_abandoned(old, NOW - timedelta(days=4), NOW)


def test_a_folder_in_use_is_renewed_long_before_it_counts_as_abandoned():
    assert storage.SCRATCH_RENEWED * 2 < storage.SCRATCH_ABANDONED
    assert storage.new_scratch_name(NOW) != storage.new_scratch_name(NOW)


def test_the_newest_row_of_each_stream_and_table_counts():
    # given rows in no order, of streams (without a table) and of tables that have one name
    rows = [
        {"stream": "bank", "table": None, "load": 2, "text": "stream"},
        {"stream": "bank", "table": "t", "load": 3, "text": "newest"},
        {"stream": "bank", "table": "t", "load": 1, "text": "old"},
        {"stream": "other", "table": "t", "load": 1, "text": "other"},
        {"stream": "bank", "table": None, "load": 1, "text": "old"},
    ]
    # then
    newest = storage.newest_rows(pa.Table.from_pylist(rows)).to_pylist()
    assert [row["text"] for row in newest] == ["stream", "newest", "other"]


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize("path", ["/lake", "/lake/public.x%41", "/lake/a#b/public.a?c", "/lake/file:/a b"])
def test_l54_a_path_of_this_machine_has_the_names_that_hadoop_takes(scheme, path):
    assert local_path(scheme + path) == path


@pytest.mark.parametrize("name", ["lake", "a%20b", "a#b?c"])
def test_rows_are_those_of_the_folder_of_exactly_this_name(tmp_path, monkeypatch, name):
    # given two lakes, one at the name that the other one has as an address
    field = {"name": "n", "type": "string", "nullable": True, "metadata": {}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    for root in {name, "a b"}:
        log = tmp_path / root / "state" / "_delta_log"
        log.mkdir(parents=True)
        pq.write_table(pa.table({"n": [root]}), log.parent / "a.parquet")
        actions = [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
            {"metaData": {"schemaString": schema, "partitionColumns": []}},
            {"add": {"path": "a.parquet"}},
        ]
        (log / f"{0:020d}.json").write_text("\n".join(map(json.dumps, actions)), encoding="utf-8")
    monkeypatch.setattr(storage, "is_local", lambda *_: True)
    # then
    rows = storage._read_rows(None, f"{tmp_path}/{name}/state", 0, ())
    assert rows is not None
    assert rows.to_pylist() == [{"n": name}]
    # and Spark reads what takes much memory, in whatever few rows
    monkeypatch.setattr(storage, "_LARGE", 2)
    assert storage._read_rows(None, f"{tmp_path}/{name}/state", 0, ()) is None
