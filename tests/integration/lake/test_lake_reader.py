"""The lake read without a JVM, beside Spark: what loads write, at what is published."""

from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pytest

from headrace import lake_reader
from spark_jobs.query import engine
from spark_jobs.silver import load as silver
from spark_jobs.silver import merge, table_task
from tests.lake.death import dying_before_it_publishes

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

DOCS = {"id": ("int4", None, None), "odd name": ("text", None, None)}
WIDE = DOCS | {"id": ("int8", None, None), "added": ("timestamptz", None, None)}
ENDS = {"id": ("int4", None, None), "at": ("timestamptz", None, None)}
NAMES = ("silver.accounts", "silver.docs", "history.docs", "silver.ends")


def test_rows_are_those_that_spark_shows_as_published(spark, logged_lake, monkeypatch):
    """Issue 33: deletion vectors, column mapping and widened columns, at the published version, in each engine."""
    # given tables whose replaced rows are marked, as those of more than a few megabytes are
    monkeypatch.setattr(merge, "_SMALL", 0)
    # one of many rows, and one with a history and an odd name, each of two sources
    lake = logged_lake('[streams.bank.tables."public.docs"]\nhistory = true\n')
    one, two = lake.feeds
    one.commit(one.schema(), *(one.insert(id=number, name="a", balance="1.00") for number in range(6000)))
    docs = (one.insert("public.docs", id=number, **{"odd name": f"o{number}"}) for number in range(20))
    one.commit(one.schema(DOCS, ["id"], "public.docs"), *docs)
    ends = (one.insert("public.ends", id=place, at=at) for place, at in enumerate(("infinity", "-infinity", None)))
    one.commit(one.schema(ENDS, ["id"], "public.ends"), *ends)
    two.commit(two.schema(), two.insert(id=1, name="theirs", balance="2.50"))
    lake.load()
    first = datetime.now(UTC)
    opened = lake_reader.open(lake.file.path)
    # when rows change and go, and a column becomes wider
    deleted = (one.delete(id=number) for number in range(0, 5500, 2))
    one.commit(one.update(id=1, name="b", balance="2.00"), *deleted)
    late = "2026-01-31T09:15:00.25Z"
    one.commit(
        one.schema(WIDE, ["id"], "public.docs"),
        one.insert("public.docs", id=2**40, added=late, **{"odd name": "n"}),
        one.update("public.docs", id=3, added=None, **{"odd name": "changed"}),
    )
    lake.load()
    # and a load dies before it publishes
    one.commit(one.update(id=3, name="not published", balance="0.00"), one.truncate("public.docs"))
    with dying_before_it_publishes(lake.file):
        lake.to_bronze()
        silver.load(spark, lake.file, "bank")
    # and a log begins with a checkpoint
    path = table_task.path(lake.file, "bank", "public.accounts")
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, path).checkpoint()
    assert list(Path(path, "_delta_log").glob("*.checkpoint*.parquet"))
    # then each table is as Spark shows it
    desk = engine.SqlEngine(spark.newSession(), lake.file)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'Asia/Jakarta'")
    connection.execute(opened.views("duckdb"))
    used = set()
    for name in NAMES:
        # Times as microseconds: Python has none beyond the year 9999.
        table = opened.table(name)
        times = {field.name for field in table.schema if str(field.type).startswith("timestamp[us, tz")}
        columns = [column.name for column in table.columns if column.name != "_nan"]

        def query(of_time, columns=columns, times=times, name=name):
            listed = ", ".join(of_time(f"{{q}}{c}{{q}}") if c in times else f"{{q}}{c}{{q}}" for c in columns)
            return f"SELECT {listed} FROM {name}"

        shown = desk.ask(query(lambda c: f"unix_micros({c})").format(q="`"))
        expected = sorted(map(tuple, shown.collect()), key=str)
        arrow = table.to_arrow()
        assert arrow.num_rows == len(expected), name
        plain = {c: arrow[c].cast("int64") if c in times else arrow[c] for c in columns}
        assert sorted(zip(*(plain[c].to_pylist() for c in columns), strict=True), key=str) == expected, name
        assert len(table.to_polars()) == len(expected)
        in_duckdb = query(lambda c: f"epoch_us({c})").format(q='"')
        if name == "silver.ends":
            # DuckDB has no such times, and reports it.
            with pytest.raises(duckdb.Error, match="out of range"):
                connection.sql(in_duckdb).fetchall()
        else:
            assert sorted(connection.sql(in_duckdb).fetchall(), key=str) == expected, name
            assert len(table.to_pandas()) == len(expected)
        used |= {"vectors"} if any(file.deleted for file in table.content.files) else set()
        used |= {word for word in ("physicalName", "typeChanges") if word in table.content.schema}
    # and what makes other readers fail was there
    assert used == {"vectors", "physicalName", "typeChanges"}
    # and what was published before is read as well, both tables at one moment
    accounts, docs = opened.tables("silver.accounts", "silver.docs", as_of=first)
    assert (accounts.to_arrow().num_rows, docs.to_arrow().num_rows) == (6001, 20)
    desk.close()
