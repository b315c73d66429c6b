"""Many tables of which a load changes a few: it costs what these few cost, and the others are not opened (L25).

Many sources (X5), and many sessions of their edges (L46).
"""

import json
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest.mock import patch

import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import CorruptInput
from headrace.schema import COPY_BEGINS
from spark_jobs.silver import batch_profile, table_task
from spark_jobs.silver.schema_versions import SchemaVersions
from spark_jobs.state import published, schema_texts

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J, L = "jakarta/bank", "london/bank"
TABLES = [f"public.t{i}" for i in range(5)]
NOTE = {"id": ("int8", None, None), "note": ("text", None, None)}


@contextmanager
def log_moved(lake, table):
    """Leave no log in a table's folder meanwhile: whatever opens the table finds none."""
    log = Path(table_task.path(lake.file, "bank", table), "_delta_log")
    log.rename(log.with_name("_moved"))
    try:
        yield
    finally:
        log.with_name("_moved").rename(log)


def forget(spark):
    """Know as little as a new process."""
    published._read.clear()
    schema_texts._known.clear()
    spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def test_l25_load_opens_no_table_that_did_not_change(logged_lake):
    # given tables of two sources
    lake = logged_lake()
    for feed in lake.feeds:
        for table in TABLES:
            feed.commit(feed.schema(NOTE, table=table), feed.insert(table, id=1, note="first"))
    assert lake.load().problems == {}
    one, _ = lake.feeds
    changed, others = TABLES[:2], TABLES[2:]
    read = []

    def fetched(spark, place, wanted, function=schema_texts._fetch):
        wanted = set(wanted)
        read.append(wanted - schema_texts._known[place].keys())
        function(spark, place, wanted)

    # when two of them change, and the others could not even be opened
    one.commit(*(one.update(table, id=1, note="second") for table in changed))
    lake.to_bronze()
    forget(lake.spark)
    with ExitStack() as stack:
        for table in others:
            stack.enter_context(log_moved(lake, table))
        stack.enter_context(patch.object(schema_texts, "_fetch", fetched))
        report = lake.load()
        forget(lake.spark)
        nothing = lake.load()
    # then these two are loaded, and a load that has nothing to do finds that out
    assert report.changes == dict.fromkeys(changed, 1)
    assert report.problems == nothing.problems == {}
    assert nothing.load is None
    assert lake.rows("note", table=changed[0]) == [(J, "second"), ("london/bank", "first")]
    assert lake.rows("note", table=others[0]) == [(J, "first"), ("london/bank", "first")]
    # and the schema records of both, which are the same at each source (L46), were read at once
    assert [len(one) for one in read if one] == [len(changed)]


def test_x5_a_range_of_thousands_of_sources_is_one_condition(spark, monkeypatch):
    """X5: a condition for each source took 6,005 calls of the JVM at 1,000 sources, and overflowed its stack at more."""
    # given 3,000 sources, each with records at four places, and records of none
    names = [f"region{number}/bank" for number in range(3_000)]
    rows = spark.range(len(names) * 4).select(
        F.concat(F.lit("region"), F.floor(F.col("id") / 4).cast("string"), F.lit("/bank")).alias("source"),
        (F.col("id") % 4).cast("string").alias("position"),
    )
    rows = rows.unionByName(spark.sql("SELECT 'new/bank' AS source, '0' AS position")).unionByName(
        spark.sql("SELECT CAST(NULL AS string) AS source, '1' AS position")
    )
    rows = rows.unionByName(spark.sql("SELECT 'region0/bank' AS source, CAST(NULL AS string) AS position"))
    low, high = dict.fromkeys(names[:2_000], "0"), dict.fromkeys(names[1_000:], "2") | {names[1_000]: ""}
    sent = []

    def send(client, *given, really=GatewayClient.send_command, **more):
        sent.append(given)
        return really(client, *given, **more)

    monkeypatch.setattr(GatewayClient, "send_command", send)
    # when rows after the low places are chosen, and up to the high ones
    after, between = batch_profile.within(low), batch_profile.within(low, high)
    calls = len(sent)
    outside = rows.filter(~between).groupBy("source").count().collect()
    # then it takes as many calls as a few sources do
    assert calls < 300
    # and these are the rows
    assert counts(rows.filter(after)) == (
        dict.fromkeys(names[:2_000], 3) | dict.fromkeys(names[2_000:], 4) | {"new/bank": 1}
    )
    inside = dict.fromkeys(names[1_000:2_000], 2) | dict.fromkeys(names[2_000:], 3) | {names[1_000]: 3}
    assert counts(rows.filter(between)) == inside
    assert {row["source"]: row["count"] for row in outside if row["source"]} == (
        {name: 4 - inside.get(name, 0) for name in names if inside.get(name, 0) < 4} | {"new/bank": 1, names[0]: 5}
    )


def counts(rows):
    return {row["source"]: row["count"] for row in rows.groupBy("source").count().collect()}


@pytest.mark.long
def test_x5_a_load_of_many_sources_is_as_one_of_few(logged_lake, monkeypatch):
    # given lakes of two sources, one of which takes them for many
    lakes = []
    for most in (50, 1):
        lake = logged_lake()
        monkeypatch.setattr(batch_profile, "_MANY_SOURCES", most)
        first, other = lake.feeds
        for feed in lake.feeds:
            feed.commit(feed.schema(), feed.insert(id=1, name="a", balance="1.00"))
        lake.load()
        # when transactions are whole at one source and not at the other
        first.commit(first.update(id=1, name="b", balance="2.00"), first.insert(id=2, name="c", balance="1.00"))
        other.commit(other.delete(id=1), ends=False)
        lakes.append((lake.load().waiting, lake.rows("id", "name")))
    # then
    assert lakes[0] == lakes[1] == ({"london/bank": 1}, [(J, 1, "b"), (J, 2, "c"), ("london/bank", 1, "a")])


def test_l46_schema_records_that_sessions_repeat_do_not_come_to_the_driver(spark):
    """L46: a replay collected all of them: of 1,000 tables, 3 sources and weekly sessions in 3 years 3.9 GB."""
    # given a table that was announced by 2,000 sessions of two sources, changed twice to and fro, and was copied once
    columns = [{"name": "id", "typeName": "int8", "length": None, "scale": None, "position": 1, "optional": False}]

    def text(number, mark="false"):
        length = 99 if 700 <= number < 800 else None
        described = [columns[0] | {"length": length}]
        source = {
            "name": J,
            "schema": "public",
            "table": "t",
            "snapshot": mark,
            "position": f"{number:09d}",
            "ts_ms": number,
        }
        change = {"type": "CREATE", "id": "x", "table": {"primaryKeyColumnNames": ["id"], "columns": described}}
        return json.dumps({"source": source, "ts_ms": number, "tableChanges": [change]})

    values = [(J if number % 2 else L, f"{number:09d}", text(number)) for number in range(2_000)]
    values += [(J, "000000900x", text(900, COPY_BEGINS)), (J, "000000900y", text(900, COPY_BEGINS))]
    columns_of = (
        "topic string, partition int, offset bigint, source string, `table` string, position string, op string, "
    )
    columns_of += "value string"
    rows = spark.createDataFrame(
        [("bank", 0, i, s, "public.t", p, None, v) for i, (s, p, v) in enumerate(values)], columns_of
    )
    high = dict.fromkeys((J, L), "999999999")
    # when they are read, all and without repeats
    every = batch_profile.schemas(rows, {}, high)
    few = batch_profile.schemas(rows, {}, high, repeated=True)
    # then each change and each mark is there, and the versions are the same
    assert [(each.source, each.position) for each in few] == [
        *((L, "000000000"), (J, "000000001"), (L, "000000700"), (J, "000000701"), (L, "000000800"), (J, "000000801")),
        *((J, "000000900x"), (J, "000000900y"), (J, "000000901")),
    ]
    assert len(every) == 2_002
    assert SchemaVersions.read({}, few, {}) == SchemaVersions.read({}, every, {})
    # and what is no schema record is there, and read by nobody
    strange = spark.createDataFrame([("bank", 0, 9_999, J, "public.t", "000009999", None, "{}")], columns_of)
    *_, last = batch_profile.schemas(rows.unionByName(strange), {}, dict.fromkeys((J, L), "9"), repeated=True)
    with pytest.raises(CorruptInput, match="offset 9999"):
        last.read()
