"""Few changes are read once, held, and planned for few rows; many are read by each table, or of many tables once (L14).

All ways end at the same rows.
"""

import shutil
from decimal import Decimal
from unittest.mock import patch

import pytest

from spark_jobs.bronze import increment
from spark_jobs.bronze import load as bronze
from spark_jobs.query import engine
from spark_jobs.silver import load as silver

LOG = {"entry": ("text", None, None)}
LIVE = "SELECT _source, id, name, balance FROM silver_live.accounts ORDER BY ALL"


def share_bronze(lake, *others):
    for other in others:
        shutil.copytree(bronze.table_path(lake.file, "bank"), bronze.table_path(other.file, "bank"), dirs_exist_ok=True)


@pytest.mark.long
def test_few_changes_and_many_end_at_the_same_rows(spark, logged_lake):
    # given lakes of one bronze with two sources: changes are few in one, and never in the others
    lakes = {name: logged_lake() for name in ("few", "many", "once")}
    first, other = lakes["few"].feeds
    reported, really, read = [], increment.few, {}

    def reading(name, function=increment.rows):
        """Return what reads bronze, and notes that it does."""
        read[name] = []
        return lambda *given: read[name].append(given) or function(*given)

    def load(*, asked=False):
        """Load both lakes, and return the rows of each, and what was seen before by who does not wait for the load."""
        results = {}
        lakes["few"].to_bronze()
        share_bronze(lakes["few"], lakes["many"])
        for name in ("few", "many"):
            lake = lakes[name]

            def few(*given, name=name, **more):
                answer = really(*given, **more) and name == "few"
                reported.append((name, answer))
                return answer

            with patch.object(increment, "few", few):
                live = _live(spark, lake.file) if asked else []
                with patch.object(increment, "rows", reading(name)):
                    report = lake.load()
            log = lake.rows("entry", table="public.log")
            results[name] = (live, _rows(lake), log, report.changes, report.waiting, report.committed_ms)
        assert results["few"] == results["many"]
        return results["few"]

    for source in (first, other):
        source.commit(source.schema(), source.schema(LOG, (), "public.log"), source.insert("public.log", entry="first"))
        source.commit(*(source.insert(id=i, name=f"n{i}", balance="1.00") for i in range(1, 9)))
    load()
    # when rows change and go, a key moves, a column is not carried, a table is emptied, another gets a column
    other.commit(other.update(id=1, name="new", balance="2.00"), other.delete(id=2))
    other.commit(other.delete(id=1), other.insert(id=1, name="again", balance="3.00"))
    other.commit(other.update(before={"id": 3}, id=30, name="n3", balance="1.00"))
    other.commit(other.update(id=4, balance="4.00", unchanged=["name"]))
    first.commit(first.truncate(), first.insert(id=5, name="after", balance="5.00"))
    first.commit(
        first.schema({**LOG, "note": LOG["entry"]}, (), "public.log"),
        first.insert("public.log", entry="wide", note="x"),
    )
    # and half a transaction waits
    other.commit(other.insert(id=99, name="half", balance="9.00"), ends=False)
    live, current, log, changes, waiting, _ = load(asked=True)
    # then
    assert live == current
    assert [row[1:] for row in current] == [
        (5, "after", Decimal("5.00")),
        (1, "again", Decimal("3.00")),
        (4, "n4", Decimal("4.00")),
        *((i, f"n{i}", Decimal("1.00")) for i in (5, 6, 7, 8)),
        (30, "n3", Decimal("1.00")),
    ]
    assert [entry for _, entry in log] == ["first", "wide", "first"]
    assert (changes, waiting) == ({"public.accounts": 8, "public.log": 1}, {"london/bank": 1})
    # and both ways were taken
    assert ("few", True) in reported
    assert not any(answer for name, answer in reported if name == "many")
    # and a load that has all of it at once, and as many tables as are worth it, ends there too
    share_bronze(lakes["few"], lakes["once"])
    with (
        patch.object(increment, "few", lambda *_, **__: False),
        patch.object(silver, "_MANY", 1),
        patch.object(increment, "rows", reading("once")),
    ):
        lakes["once"].load()
    assert (_rows(lakes["once"]), lakes["once"].rows("entry", table="public.log")) == (current, log)
    # and bronze was read once for all tables where changes are few, or tables many
    assert {name: len(reads) for name, reads in read.items()} == {"few": 1, "many": 3, "once": 1}


def _rows(lake):
    return sorted(lake.rows("id", "name", "balance"))


def _live(spark, lake):
    sql_engine = engine.SqlEngine(spark.newSession(), lake)
    try:
        return [tuple(row) for row in sql_engine.ask(LIVE).collect()]
    finally:
        sql_engine.close()


@pytest.mark.long
def test_a_load_of_few_changes_into_small_tables_takes_few_jobs(spark, logged_lake):
    """A load of a thousand changes in four tables took about 60 jobs, each of which costs more than its rows."""
    # given four tables
    lake, tables = logged_lake(), [f"public.t{number}" for number in range(4)]
    source, _ = lake.feeds
    for table in tables:
        rows = [source.insert(table, id=number, name="a", balance="1.00") for number in range(50)]
        source.commit(source.schema(table=table), *rows)
    lake.load()
    scheduler = spark.sparkContext._jsc.sc().dagScheduler()
    # when rows of each change, come and go
    for table in tables:
        changed = [source.update(table, id=number, name="b", balance="1.00") for number in range(10)]
        source.commit(*changed, source.delete(table, id=20), source.insert(table, id=50, name="c", balance="1.00"))
    lake.to_bronze()
    before = scheduler.numTotalJobs()
    report = lake.load()
    jobs = scheduler.numTotalJobs() - before
    # then
    assert report.changes == dict.fromkeys(tables, 12)
    assert [row[1] for row in lake.rows("name", table=tables[3])].count("b") == 10
    # with one more for each table it was 31
    assert jobs < 30
