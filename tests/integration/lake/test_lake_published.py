"""The table of what is published: a row for each table that changed, many writers, and what earlier releases wrote."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import msgspec
import pytest
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.errors import Retryable
from headrace.schema import Column, TableSchema
from spark_jobs import storage
from spark_jobs.state import publication, published, schema_texts
from spark_jobs.state.published import Published, Table

J = "jakarta/bank"
#: As releases before this table had it.
FORMER = (
    "stream string, load bigint, started_at timestamp, finished_at timestamp, bronze_version bigint, "
    "bronze_done bigint, changes bigint, positions map<string, string>, tables array<struct<`table`: string, "
    "version: bigint, changes: bigint, positions: map<string, string>, schemas: map<string, string>, "
    "problem: string, history: bigint>>"
)


def schema(*key):
    known = TableSchema(
        schema="public", table="a", key=list(key), columns=[Column(name="id", type_name="int8", position=1)]
    )
    source = {"schema": "public", "table": "a"}
    return msgspec.json.encode({"source": source, "tableChanges": [known.change()]}).decode()


def tables(position, *names, version=0, **values):
    return {name: Table(table=name, version=version, positions={J: position}, **values) for name in names}


def rows(spark, lake):
    return spark.read.format("delta").load(published.path(lake)).count()


def test_l13_load_writes_what_it_changed_and_streams_publish_at_once(spark, lake_file):
    lake = lake_file(**{f"s{i}": "t" for i in range(4)})
    now = datetime.now(UTC)
    names = [f"public.t{i}" for i in range(300)]
    text = schema("id")

    def first(i):
        known = tables("1", *names, schemas={J: text}, keyed=True)
        done = Published(stream=f"s{i}", load=1, started_at=now, positions={J: "1"}, tables=known)
        return publication.append(spark.newSession(), lake, done)

    # L29: when the first loads of all streams publish at the same time, none fails
    with ThreadPoolExecutor(4) as pool:
        assert [each.load for each in pool.map(first, range(4))] == [1] * 4
    assert [each.stream for each in published.latest_of_all(spark, lake)] == ["s0", "s1", "s2", "s3"]
    assert rows(spark, lake) == 4 * 301
    # when a load changes two tables of many
    before = published.latest(spark, lake, "s0")
    moved = {name: replace(each, positions={J: "2"}) for name, each in before.tables.items()}
    own = tables("2", *names[:2], version=1, changes=3, schemas={J: text}, keyed=True, since=1)
    after = publication.append(spark, lake, replace(before, positions={J: "2"}, tables=moved | own), before=before)
    # then three rows are written, and everything is as it was given, schemas from where they are kept once
    assert rows(spark, lake) == 4 * 301 + 3
    published._read.clear()
    schema_texts._known.clear()
    state = published.latest(spark, lake, "s0")
    assert state == after
    assert state.tables[names[7]].positions == {J: "2"}
    assert json.loads(state.tables[names[7]].schemas[J]) == json.loads(text)
    assert spark.read.format("delta").load(schema_texts.path(lake)).select("digest").distinct().count() == 1
    # and Spark, where Python cannot read these tables, finds the same
    for known in (published._read, schema_texts._known):
        known.clear()
    with patch.object(storage, "_read_rows", lambda *_: None):
        assert published.latest(spark, lake, "s0") == after
        assert published.latest(spark, lake, "s0").tables[names[7]].schemas[J] == state.tables[names[7]].schemas[J]
    # and a load that worked on what was published before is refused
    with pytest.raises(Retryable, match="something else published"):
        publication.append(spark, lake, replace(before, positions={J: "3"}), before=before)
    # when time has passed, rows that were replaced are removed, and what is published stays
    spark.sql(f"UPDATE delta.`{published.path(lake)}` SET finished_at = finished_at - INTERVAL 10 DAYS")
    moved = {name: replace(each, changes=0, positions={J: "4"}) for name, each in state.tables.items()}
    again = publication.append(spark, lake, replace(state, positions={J: "4"}, tables=moved), before=state)
    publication.prune(spark, lake)
    assert rows(spark, lake) == 4 * 301 + 1
    assert published.latest(spark, lake, "s0").positions == again.positions
    assert published.latest(spark, lake, "s1").load == 1


@pytest.mark.long
def test_what_earlier_releases_published_is_carried_over(spark, lake_file):
    # given what such a release has published, twice
    lake = lake_file(bank="t", other="t")
    now = datetime.now(UTC)
    text = schema("id")
    for load in (1, 2):
        table = {"table": "public.a", "version": load, "changes": 1, "positions": {J: str(load)}, "schemas": {J: text}}
        row = {"stream": "bank", "load": load, "started_at": now, "finished_at": now, "bronze_version": 3, "changes": 1}
        row |= {"positions": {J: str(load)}, "tables": [table | {"problem": None, "history": None}]}
        parsed = F.from_json(F.lit(msgspec.json.encode(row).decode()), FORMER)
        spark.range(1).select(F.inline(F.array(parsed))).write.format("delta").mode("append").save(
            published.former_path(lake)
        )
    # then it is what is published
    state = published.latest(spark, lake, "bank")
    assert (state.load, state.positions, state.tables["public.a"].version) == (2, {J: "2"}, 2)
    assert state.tables["public.a"].keyed
    # when the next load publishes, though the table has not changed
    done = replace(
        state, positions={J: "3"}, tables={"public.a": replace(state.tables["public.a"], positions={J: "3"})}
    )
    publication.append(spark, lake, done, before=state)
    # then nothing of the former table is needed any more
    spark.sql(f"DELETE FROM delta.`{published.former_path(lake)}`")
    published._read.clear()
    schema_texts._known.clear()
    now_there = published.latest(spark, lake, "bank")
    assert (now_there.load, now_there.tables["public.a"].version) == (3, 2)
    assert now_there.tables["public.a"].schemas == {J: text}
    assert published.before(spark, lake, "bank", {J: "3"}, now - timedelta(days=1)) == now_there
    assert published.before(spark, lake, "bank", {J: "1"}, now - timedelta(days=1)) is None


def test_l21_table_that_was_made_again_is_not_looked_for_in_states_before(spark, lake_file):
    # given a table, and a load that made it again, after its folder was moved
    lake = lake_file(bank="t")
    now = datetime.now(UTC)
    one = publication.append(
        spark,
        lake,
        Published(stream="bank", load=1, started_at=now, positions={J: "1"}, tables=tables("1", "a", "b", version=9)),
    )
    again = replace(one, positions={J: "2"}, tables=tables("2", "a", version=9) | tables("2", "b", version=0, since=-1))
    publication.append(spark, lake, again, before=one)
    # when the state before is asked for
    result = published.before(spark, lake, "bank", {J: "1"}, now - timedelta(days=1))
    # then the table that stayed is in it, the other one has to be made from bronze
    assert result is not None
    assert result.tables["a"].version == 9
    assert result.tables["b"] == Table(table="b")
