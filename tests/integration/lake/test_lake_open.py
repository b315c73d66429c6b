"""A table as every reader of Delta knows it (readers = "open"): changed by maintenance, kept so by loads (issue 33)."""

import deltalake
import polars as pl
import pytest

from headrace.lake.table import open_name
from spark_jobs.maintenance import maintain
from spark_jobs.query import engine
from spark_jobs.silver import merge, table_task
from spark_jobs.state import published

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = [pytest.mark.timeout(1500), pytest.mark.long]

T = "public.docs"
DOCS = {"odd id": ("int4", None, None), "odd name": ("text", None, None), "balance": ("numeric", 8, 2)}
WIDE = DOCS | {"odd id": ("int8", None, None), "balance": ("numeric", 12, 4)}
HISTORY = f'[streams.bank.tables."{T}"]\nhistory = true\n'
ID, NAME = (open_name(name) for name in ("odd id", "odd name"))


def docs(*rows):
    return [dict(zip(DOCS, row, strict=True)) for row in rows]


def rows_by_other_readers(lake):
    """Return the published rows of the table and its history by readers that know little of Delta; each has to agree."""
    table = published.latest(lake.spark, lake.file, "bank").tables[T]
    found = []
    for path, version in (
        (table_task.path(lake.file, "bank", T), table.version),
        (table_task.history_path(lake.file, "bank", T), table.history),
    ):
        plain = deltalake.DeltaTable(path, version=version)
        by_pandas = plain.to_pandas()[[ID, NAME, "balance"]]
        by_polars = pl.scan_delta(path, version=version).select(ID, NAME, "balance").collect()
        rows = sorted(map(tuple, by_polars.rows()))
        assert sorted(map(tuple, by_pandas.itertuples(index=False))) == rows
        assert plain.protocol().reader_features in (None, [], ["timestampNtz"])
        found.append([(key, name, str(balance)) for key, name, balance in rows])
    return found


def test_a_table_becomes_one_for_every_reader_and_back(logged_lake, monkeypatch):
    # given a table with marked rows, mapped and widened columns, clustered
    monkeypatch.setattr(merge, "_SMALL", 0)
    monkeypatch.setattr(merge, "LARGE", 0)
    lake = logged_lake(HISTORY)
    (one, _) = lake.feeds
    rows = docs(*((number, f"n{number}", "1.00") for number in range(50)))
    one.commit(one.schema(DOCS, ["odd id"], T), *(one.insert(T, **row) for row in rows))
    lake.load()
    one.commit(
        one.schema(WIDE, ["odd id"], T), one.update(T, **docs((2, "b", "2.0000"))[0]), one.delete(T, **{"odd id": 3})
    )
    assert lake.load().problems == {}
    maintain.maintain(lake.spark, lake.file, "bank")
    path = table_task.path(lake.file, "bank", T)
    features = {"deletionVectors", "columnMapping", "typeWidening"}
    assert features <= set(deltalake.DeltaTable(path).protocol().reader_features)
    assert merge.columns(lake.spark, path) == ["_source", "odd id"]

    # when it is to be open: a load that comes before maintenance goes on with the names that are there
    lake.set(HISTORY + 'readers = "open"\n')
    one.commit(one.update(T, **docs((4, "before", "1.0000"))[0]))
    assert lake.load().problems == {}
    assert (one.source, 4, "before") in lake.rows("`odd id`", "`odd name`", table=T)
    maintain.maintain(lake.spark, lake.file, "bank")
    # then readers that know little read it, and its history
    expected = {number: (number, f"n{number}", "1.0000") for number in range(50) if number != 3}
    expected |= {2: (2, "b", "2.0000"), 4: (4, "before", "1.0000")}
    now, history = rows_by_other_readers(lake)
    assert now == sorted(expected.values())
    assert len(history) == 52
    assert merge.columns(lake.spark, path) == ["_source", ID]

    # when it goes on: rows change and go, and columns become wider once more, with a new name that Parquet does not take
    wider = WIDE | {"balance": ("numeric", 20, 6), "new one": ("int4", None, None)}
    one.commit(
        one.schema(wider, ["odd id"], T),
        one.update(T, **docs((5, "c", "3.000000"))[0], **{"new one": 1}),
        one.delete(T, **{"odd id": 6}),
    )
    sql_engine = engine.SqlEngine(lake.spark.newSession(), lake.file)
    lake.to_bronze()
    live = sql_engine.ask(f"SELECT {ID}, {NAME} FROM silver_live.docs WHERE {ID} = 5").collect()
    assert [tuple(row) for row in live] == [(5, "c")]
    sql_engine.close()
    assert lake.load().problems == {}
    del expected[6]
    expected[5] = (5, "c", "3.000000")
    now, history = rows_by_other_readers(lake)
    assert now == sorted((key, name, f"{float(balance):.6f}") for key, name, balance in expected.values())
    assert len(history) == 53
    assert open_name("new one") in pl.scan_delta(path).collect_schema()

    # when it is no longer to be open, it marks rows again, under the names that it has
    lake.set(HISTORY)
    maintain.maintain(lake.spark, lake.file, "bank")
    one.commit(one.delete(T, **{"odd id": 7}))
    assert lake.load().problems == {}
    assert "deletionVectors" in deltalake.DeltaTable(path).protocol().reader_features
    assert len(lake.rows(ID, table=T)) == 47
