"""The lake read without a JVM, beside Spark, and by other readers of Delta: what loads write, at what is published."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pytest

from headrace.lake import Lake
from headrace.lake import open as open_lake
from spark_jobs.maintenance import maintain
from spark_jobs.query import engine
from spark_jobs.silver import load as silver
from spark_jobs.silver import merge, table_task
from tests.lake.death import dying_before_it_publishes
from tests.lake.logged import LoggedLake

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

DOCS = {"id": ("int4", None, None), "odd name": ("text", None, None)}
WIDE = DOCS | {"id": ("int8", None, None), "added": ("timestamptz", None, None)}
ENDS = {"id": ("int4", None, None), "at": ("timestamptz", None, None)}
SMALL = {"id": ("int4", None, None), "note": ("text", None, None)}
NAMES = ("silver.accounts", "silver.docs", "history.docs", "silver.ends", "silver.open")
#: Tables of which each has one thing that readers may not know, and one that has none although the same was done to it.
SHAPES = ("plain", "widened", "renamed", "clustered", "open")
SETTINGS = """[streams.bank.tables."public.docs"]
history = true
[streams.bank.tables."public.plain"]
readers = "open"
[streams.bank.tables."public.open"]
readers = "open"
"""


@dataclass(frozen=True)
class ReadLake:
    """A lake of two loads, and of a third one that died before it published."""

    lake: LoggedLake
    #: When the first one had published.
    first: datetime

    @property
    def opened(self) -> Lake:
        return open_lake(self.lake.file.path)


@pytest.fixture(scope="module")
def read_lake(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadLake]:
    with pytest.MonkeyPatch.context() as patch:
        # Replaced rows are marked, as those of tables of more than a few megabytes are, and large tables are clustered.
        patch.setattr(merge, "_SMALL", 0)
        patch.setattr(merge, "LARGE", 0)
        yield _loaded(LoggedLake(spark, tmp_path_factory.mktemp("read"), SETTINGS))


def _loaded(lake: LoggedLake) -> ReadLake:
    # one table of many rows, and one with a history and an odd name, each of two sources
    one, two = lake.feeds
    one.commit(one.schema(), *(one.insert(id=number, name="a", balance="1.00") for number in range(6000)))
    docs = (one.insert("public.docs", id=number, **{"odd name": f"o{number}"}) for number in range(20))
    one.commit(one.schema(DOCS, ["id"], "public.docs"), *docs)
    ends = (one.insert("public.ends", id=place, at=at) for place, at in enumerate(("infinity", "-infinity", None)))
    one.commit(one.schema(ENDS, ["id"], "public.ends"), *ends)
    two.commit(two.schema(), two.insert(id=1, name="theirs", balance="2.50"))
    for shape in SHAPES:
        table, columns = f"public.{shape}", DOCS if shape in {"renamed", "open"} else SMALL
        rows = (one.insert(table, **dict(zip(columns, (number, f"n{number}"), strict=True))) for number in range(8))
        one.commit(one.schema(columns, ["id"], table), *rows)
    assert lake.load().problems == {}
    first = datetime.now(UTC)
    # when rows change and go, and columns become wider
    deleted = (one.delete(id=number) for number in range(0, 5500, 2))
    one.commit(one.update(id=1, name="b", balance="2.00"), *deleted)
    late = "2026-01-31T09:15:00.25Z"
    for table in ("public.docs", "public.open"):
        one.commit(
            one.schema(WIDE, ["id"], table),
            one.insert(table, id=2**40, added=late, **{"odd name": "n"}),
            one.update(table, id=3, added=None, **{"odd name": "changed"}),
        )
    one.commit(
        one.schema(SMALL | {"id": ("int8", None, None)}, ["id"], "public.widened"),
        one.insert("public.widened", id=2**40, note="n"),
    )
    assert lake.load().problems == {}
    maintain.compact(lake.spark, lake.file, "bank", ["public.clustered"])
    # and a load dies before it publishes
    one.commit(one.update(id=3, name="not published", balance="0.00"), one.truncate("public.docs"))
    for shape in SHAPES:
        one.commit(one.truncate(f"public.{shape}"))
    with dying_before_it_publishes(lake.file):
        lake.to_bronze()
        silver.load(lake.spark, lake.file, "bank")
    # and a log begins with a checkpoint
    path = table_task.path(lake.file, "bank", "public.accounts")
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.forTable(lake.spark._jsparkSession, path).checkpoint()
    assert list(Path(path, "_delta_log").glob("*.checkpoint*.parquet"))
    return ReadLake(lake, first)


def test_rows_are_those_that_spark_shows_as_published(spark, read_lake):
    """Issue 33: deletion vectors, column mapping and widened columns, at the published version, in each engine."""
    opened = read_lake.opened
    sql_engine = engine.SqlEngine(spark.newSession(), read_lake.lake.file)
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

        shown = sql_engine.ask(query(lambda c: f"unix_micros({c})").format(q="`"))
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
    accounts, docs = opened.tables("silver.accounts", "silver.docs", as_of=read_lake.first)
    assert (accounts.to_arrow().num_rows, docs.to_arrow().num_rows) == (6001, 20)
    # and bronze, as it is now
    raw = opened.table("bronze.bank")
    (number,) = sql_engine.ask("SELECT count(*) FROM bronze.bank").first()
    assert raw.select("position").to_arrow().num_rows == number
    assert "bronze" not in opened.views("duckdb")
    # and what is published
    for view in ("lake.tables", "lake.published"):
        columns = sql_engine.ask(f"SELECT * FROM {view}").columns
        assert [column.name for column in opened.table(view).columns] == columns
        plain = [column for column in columns if column not in {"positions", "started_at", "finished_at"}]
        rows = [tuple(row.values()) for row in opened.table(view).select(*plain).to_arrow().to_pylist()]
        listed = ", ".join(f"`{column}`" for column in plain)
        shown = sql_engine.ask(f"SELECT {listed} FROM {view}").collect()
        assert sorted(rows, key=str) == sorted(map(tuple, shown), key=str)
    sql_engine.close()


def _by_pandas(_spark, path, version):
    return list(deltalake.DeltaTable(path, version=version).to_pandas()["id"])


def _by_deltalake(_spark, path, version):
    query = (
        deltalake.QueryBuilder().register("t", deltalake.DeltaTable(path, version=version)).execute("SELECT id FROM t")
    )
    return query.read_all()["id"].to_pylist()


def _by_polars(_spark, path, version):
    return pl.scan_delta(path, version=version).collect()["id"].to_list()


def _by_spark(spark, path, version):
    reader = spark.newSession().read.format("delta")
    rows = (reader if version is None else reader.option("versionAsOf", version)).load(path).collect()
    return [row["id"] for row in rows]


ENGINES = {"pandas": _by_pandas, "deltalake": _by_deltalake, "polars": _by_polars, "spark": _by_spark}
#: What a reader refuses, by the feature that its error names; all tables but open ones may have marked rows.
REFUSED = {
    ("pandas", "vectors"): "deletionVectors",
    ("pandas", "clustered"): "deletionVectors",
    ("pandas", "renamed"): "columnMapping",
    ("pandas", "widened"): "typeWidening",
    ("deltalake", "widened"): "(?i)typeWidening",
    ("polars", "renamed"): "columnMapping",
    ("polars", "widened"): "typeWidening",
}


@pytest.mark.parametrize("shape", ["vectors", *SHAPES])
@pytest.mark.parametrize("reader", ENGINES)
def test_other_readers_show_a_published_version_or_refuse_the_table(spark, read_lake, reader, shape):
    """docs/reader.md has this matrix; `make test-readers` has DuckDB's own extension for Delta."""
    name = "accounts" if shape == "vectors" else shape
    path = table_task.path(read_lake.lake.file, "bank", f"public.{name}")
    ours = read_lake.opened.table(f"silver.{name}")
    if refused := REFUSED.get((reader, shape)):
        with pytest.raises(Exception, match=refused):
            ENGINES[reader](spark, path, ours.version)
        return
    expected = sorted(ours.to_arrow()["id"].to_pylist())
    assert expected
    assert sorted(ENGINES[reader](spark, path, ours.version)) == expected
    # and without a version, what no load has published
    assert sorted(ENGINES[reader](spark, path, None)) == (expected if shape == "vectors" else [])
