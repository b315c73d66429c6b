"""Expectations: counted per load, with a running total that equals a count of the table, whatever loads did to its files."""

import json

import pytest

from spark_jobs import storage
from spark_jobs.maintenance import replay
from spark_jobs.query import published_tables
from spark_jobs.query.engine import SqlEngine
from spark_jobs.silver import expectations, table_task
from spark_jobs.state import published

TABLE = "public.accounts"
AMOUNT, NAMED = "balance >= 0", "name RLIKE '^[a-z]+$' AND length(name) < 9"
WRONG = {
    "unknown": "balanse >= 0",
    "syntax": "balance >= )",
    "refused": "reflect('java.lang.System', 'exit', '1') = '0'",
    "no_condition": "balance + 1",
    "elsewhere": "balance > (SELECT 1)",
    "random": "rand() < 0.5",
    "today": "id < unix_date(current_date)",
    "hidden": "exists(array(id), each -> each < unix_timestamp())",
    "unclosed": "balance > 0 -- \\",
    "file": "_metadata.file_name = 'a'",
    "several": "sum(balance) > 0",
    "fails": "cast(name AS int) > 0",
}


def settings(expect, more=""):
    listed = ", ".join(f"{name} = {json.dumps(text)}" for name, text in expect.items())
    return f'[streams.bank.tables."{TABLE}"]\nexpect = {{ {listed} }}\n{more}'


def quality(lake):
    """Return what is counted of each expectation: of the last load, and of all rows."""
    counted = published.latest(lake.spark, lake.file, "bank").tables[TABLE].quality
    return {q.expectation: (q.checked, q.failing, q.total, q.total_failing) for q in counted if q.problem is None}


def whole(lake, *expressions):
    """Return the same of all rows, counted from the published table."""
    frame = published_tables.frame(lake.spark, lake.file, "bank", TABLE)
    frame = frame.filter("_deleted_at IS NULL") if "_deleted_at" in frame.columns else frame
    return [(frame.count(), frame.filter(f"NOT coalesce(({e}), false)").count()) for e in expressions]


@pytest.fixture
def jobs(spark, monkeypatch):
    """Return the numbers of Spark's jobs that counting a table took, each with what it counted, and from what on."""
    taken, tables = [], []
    count, counted, scheduler = expectations._count, expectations._counted, spark.sparkContext._jsc.sc().dagScheduler()

    def measure(*arguments):
        before = scheduler.numTotalJobs()
        result = count(*arguments)
        taken.append((scheduler.numTotalJobs() - before, tables[:]))
        tables.clear()
        return result

    def look(*arguments):
        tables.append((list(arguments[4]), bool(arguments[1]), arguments[5] is None))
        return counted(*arguments)

    monkeypatch.setattr(expectations, "_count", measure)
    monkeypatch.setattr(expectations, "_counted", look)
    return taken


@pytest.mark.long
def test_what_is_counted_equals_a_count_of_the_table(logged_lake, jobs):
    # given a table without expectations, and one with them
    lake = logged_lake()
    one, other = lake.feeds
    one.commit(one.schema(), *(one.insert(id=i, name="abc", balance=str(i - 3)) for i in range(1, 9)))
    other.commit(other.schema(), other.insert(id=1, name="B", balance=None))
    lake.load()
    assert jobs == []
    lake.set(settings({"amount_positive": AMOUNT, "named": NAMED}, "valid_view = true"))
    # when the next load has no other work: then all rows are counted, and none as changed
    assert not [each for each in published_tables.relations(lake.spark, lake.file) if each.database == "valid"]
    assert lake.load().load == 2
    assert quality(lake) == {"amount_positive": (0, 0, 9, 3), "named": (0, 0, 9, 1)}
    assert lake.load().load is None
    # when rows are put, changed and removed, then these are counted, and what they replaced is not any more
    one.commit(one.update(id=1, name="abc", balance="5"), one.delete(id=2), one.insert(id=20, name="x", balance="-9"))
    other.commit(other.update(id=1, name="named", balance="-1.00"))
    lake.load()
    assert quality(lake) == {"amount_positive": (3, 2, 9, 2), "named": (3, 0, 9, 0)}
    assert whole(lake, AMOUNT, NAMED) == [(9, 2), (9, 0)]
    both = ["amount_positive", "named"]
    assert jobs == [(1, [(both, False, False)]), (1, [(both, True, False)])]
    # when files were put together, a column is new, and deleted rows
    lake.spark.sql(f"OPTIMIZE {storage.table(table_task.path(lake.file, 'bank', TABLE))}")
    one.commit(one.truncate(), one.insert(id=30, name="Z", balance="1"))
    lake.load()
    counted = quality(lake)
    assert [counted["amount_positive"][2:], counted["named"][2:]] == whole(lake, AMOUNT, NAMED) == [(2, 1), (2, 1)]
    wider = {
        "id": ("int8", None, None),
        "name": ("text", None, None),
        "balance": ("numeric", 12, 3),
        "at": ("text", None, None),
    }
    one.commit(one.schema(wider), one.insert(id=31, name="z", balance="-1.125", at="now"))
    lake.load()
    assert quality(lake)["amount_positive"] == (1, 1, 3, 2)

    # then SQL shows the counts of each load once, and the rows that meet all of them
    engine = SqlEngine(lake.spark.newSession(), lake.file)
    shown = engine.ask("SELECT load, checked, failing FROM lake.quality WHERE expectation = 'named' ORDER BY load")
    assert [tuple(row) for row in shown.collect()] == [(2, 0, 0), (3, 3, 0), (4, 1, 1), (5, 1, 0)]
    assert engine.ask("SELECT id FROM valid.accounts").collect() == []
    engine.close()
    (listed,) = published_tables.list_tables(lake.spark, lake.file, ["bank"], rows=False)
    assert listed.quality["amount_positive"]["total_failing"] == 2

    # when an expectation is another one, and others are wrong, then no load fails, and the reasons are shown
    lake.set(settings({"amount_positive": "balance < 0", **WRONG}))
    one.commit(one.insert(id=32, name="z", balance="7"))
    assert lake.load().problems == {}
    assert quality(lake) == {"amount_positive": (1, 1, 4, 2)}
    (listed,) = published_tables.list_tables(lake.spark, lake.file, ["bank"], rows=False)
    reasons = {name: one["problem"] for name, one in listed.quality.items()}
    assert reasons.pop("amount_positive") is None
    assert all(reasons[name] for name in WRONG), reasons
    assert "balanse" in reasons["unknown"]
    assert "reflect is refused" in reasons["refused"]
    assert "Spark could not finish" in reasons["fails"]
    # and one that fails at a row has no other one counted again
    one.commit(one.insert(id=33, name="z", balance="7"))
    lake.load()
    assert quality(lake) == {"amount_positive": (1, 1, 5, 3)}
    assert (["amount_positive"], True, False) in jobs[-1][1]
    # and they are counted again once they are right, after a replay too
    lake.set(settings({"amount_positive": AMOUNT}))
    replay.of_silver(lake.spark, lake.file, "bank")
    assert quality(lake) == {"amount_positive": (0, 0, 5, 2)}
    lake.set("")
    assert lake.load().load is not None
    assert quality(lake) == {}
