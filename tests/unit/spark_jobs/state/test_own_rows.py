"""The newest row of each stream and table, as this process finds it."""

import pyarrow as pa

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
