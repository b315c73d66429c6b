"""The newest row of each stream and table, as this process finds it."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs import storage
from spark_jobs.state import own_rows


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
    newest = own_rows.newest(pa.Table.from_pylist(rows)).to_pylist()
    assert [row["text"] for row in newest] == ["stream", "newest", "other"]


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
    rows = own_rows._read(None, f"{tmp_path}/{name}/state", 0, ())
    assert rows is not None
    assert rows.to_pylist() == [{"n": name}]
    # and Spark reads what takes much memory, in whatever few rows
    monkeypatch.setattr(own_rows, "_LARGE", 2)
    assert own_rows._read(None, f"{tmp_path}/{name}/state", 0, ()) is None
