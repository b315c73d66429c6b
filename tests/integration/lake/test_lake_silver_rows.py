"""Silver's rows after every kind of change, into tables that are there and into new ones."""

from decimal import Decimal

from spark_jobs.bronze import load as bronze
from spark_jobs.silver import merge, table_task
from spark_jobs.state import log_files
from tests.lake import scenarios as lake_scenarios

J, L = "jakarta/bank", "london/bank"
HOT, LARGE, MOVED, EMPTIED, DOCS, AUDIT, COPIED = (
    f"public.{name}" for name in ("hot", "large", "moved", "emptied", "docs", "audit", "copied")
)
EMPTIED_LOG = "public.emptied_log"
LOG = {"entry": ("text", None, None)}


def test_tables_end_with_the_rows_of_their_sources(spark, logged_lake, monkeypatch):
    lake = logged_lake()

    def is_large(size):
        path = table_task.path(lake.file, "bank", LARGE)
        return size >= log_files.size(spark, path)

    # Tables below that size are merged without a filter.
    monkeypatch.setattr(merge, "pays", is_large)
    lake_scenarios.run(
        lake,
        changed_again_and_again,
        large_beside_its_changes,
        with_other_keys,
        truncated,
        with_columns_that_were_not_carried,
        without_a_key,
        copied,
    )
    assert any("might_contain" in plan for plan in _plans(spark))


def _plans(spark):
    done = spark._jsparkSession.sharedState().statusStore().executionsList()
    return [done.apply(number).physicalPlanDescription() for number in range(done.size())]


def changed_again_and_again(lake):
    # given few keys with many changes each, from an empty table and into one with rows
    source, _ = lake.feeds
    source.commit(source.schema(table=HOT))
    for begin in (0, 50):
        for n in range(begin, begin + 50):
            source.commit(*(source.update(HOT, id=i, name=f"{i} at {n}", balance="1.00") for i in (1, 2, 3)))
        report = yield
        assert report.changes[HOT] == 150
        assert lake.rows("name", table=HOT) == [(J, f"{i} at {begin + 49}") for i in (1, 2, 3)]


def large_beside_its_changes(lake):
    source, _ = lake.feeds
    name = "a" * 100
    source.commit(
        source.schema(table=LARGE),
        *(source.insert(LARGE, id=i, name=f"{i}{name}", balance="1.00") for i in range(1000)),
    )
    yield
    source.commit(
        source.update(LARGE, id=500, name="b", balance="1.00"),
        source.delete(LARGE, id=0),
        source.delete(LARGE, id=2000),
    )
    source.commit(
        source.insert(LARGE, id=1000, name="c", balance="1.00"),
        source.insert(LARGE, id=0, name="again", balance="1.00"),
    )
    yield
    source.commit(source.delete(LARGE, id=500))
    yield
    names = {key: name for _, key, name in lake.rows("id", "name", table=LARGE)}
    assert names == {0: "again", 1000: "c"} | {key: f"{key}{name}" for key in range(1, 1000) if key != 500}


def with_other_keys(lake):
    source, _ = lake.feeds
    source.commit(
        source.schema(table=MOVED), *(source.insert(MOVED, id=i, name=f"n{i}", balance="1.00") for i in (1, 2, 3))
    )
    yield

    def update(before, key, name):
        return source.update(MOVED, before=before, id=key, name=name, balance="1.00")

    # when a key moves, two change places through a third, and one moves within a whole old row
    source.commit(update({"id": 1}, 10, "n1"))
    source.commit(update({"id": 2}, 99, "n2"), update({"id": 3}, 2, "n3"), update({"id": 99}, 3, "n2"))
    source.commit(update({"name": "n1", "id": 10, "balance": "1.00"}, 11, "n1"))
    # and one with a whole old row does not move
    source.commit(update({"name": "n3", "id": 2, "balance": "1.00"}, 2, "same"))
    yield
    assert lake.rows("id", "name", table=MOVED) == [(J, 11, "n1"), (J, 2, "same"), (J, 3, "n2")]


def truncated(lake):
    # given a table with a key and one without, in two sources
    one, _ = lake.feeds
    for source in lake.feeds:
        source.commit(source.schema(table=EMPTIED), source.insert(EMPTIED, id=1, name="old", balance="1.00"))
        source.commit(source.schema(LOG, (), EMPTIED_LOG), source.insert(EMPTIED_LOG, entry="old"))
    yield
    # when one of them truncates between other changes
    one.commit(one.insert(EMPTIED, id=2, name="gone", balance="1.00"), one.insert(EMPTIED_LOG, entry="gone"))
    one.commit(one.truncate(EMPTIED), one.truncate(EMPTIED_LOG))
    one.commit(one.insert(EMPTIED, id=3, name="new", balance="1.00"), one.insert(EMPTIED_LOG, entry="new"))
    yield
    assert lake.rows("id", "name", table=EMPTIED) == [(J, 3, "new"), (L, 1, "old")]
    assert lake.rows("entry", table=EMPTIED_LOG) == [(J, "new"), (L, "old")]
    # and a truncate with nothing after it
    one.commit(one.truncate(EMPTIED), one.truncate(EMPTIED_LOG))
    yield
    assert lake.rows("id", table=EMPTIED) == [(L, 1)]
    assert lake.rows("entry", table=EMPTIED_LOG) == [(L, "old")]


# B8
def with_columns_that_were_not_carried(lake):
    source, _ = lake.feeds
    text = ("text", None, None)
    columns = {"id": ("int8", None, None), "big": text, "huge": text, "n": ("int4", None, None)}
    source.commit(
        source.schema(columns, ["id"], DOCS),
        *(source.insert(DOCS, id=i, big=f"big{i}", huge=f"huge{i}", n=0) for i in (1, 2, 3, 4, 5)),
    )
    yield

    def update(**row):
        return source.update(DOCS, **row)

    source.commit(
        # Partial updates of one row, one after the other.
        update(id=1, n=1, unchanged=["big", "huge"]),
        update(id=1, n=2, big="new", unchanged=["huge"]),
        update(id=1, n=3, unchanged=["big", "huge"]),
        # A null is a value.
        update(id=2, n=1, big=None, unchanged=["huge"]),
        update(id=2, n=2, unchanged=["big", "huge"]),
        # Its row moves, twice, and another takes its place.
        update(before={"id": 3}, id=30, n=1, unchanged=["big", "huge"]),
        update(before={"id": 30}, id=31, n=2, big="moved", unchanged=["huge"]),
        update(before={"id": 4}, id=3, n=1, unchanged=["big", "huge"]),
        # Deleted and made again.
        source.delete(DOCS, id=5),
        source.insert(DOCS, id=5, big="fresh", huge="fresh", n=0),
        update(id=5, n=1, unchanged=["big", "huge"]),
        # Made and changed within one load.
        source.insert(DOCS, id=6, big="b6", huge="h6", n=0),
        update(id=6, n=1, unchanged=["huge"], big="b7"),
    )
    yield
    assert [row[1:] for row in lake.rows("id", "big", "huge", "n", table=DOCS)] == [
        (1, "new", "huge1", 3),
        (2, None, "huge2", 2),
        (3, "big4", "huge4", 1),
        (31, "moved", "huge3", 2),
        (5, "fresh", "fresh", 1),
        (6, "b7", "h6", 1),
    ]


def without_a_key(lake):
    """It stops alone at an update that has no old row: test_lake_stopped.py shows how it goes on, test_lake_bags.py others."""
    source, _ = lake.feeds
    log = LOG | {"n": ("int4", None, None)}
    source.commit(
        source.schema(log, (), AUDIT), source.insert(AUDIT, entry="x", n=1), source.insert(AUDIT, entry="x", n=1)
    )
    yield
    source.commit(source.insert(AUDIT, entry="y", n=2))
    yield
    assert lake.rows("entry", "n", table=AUDIT) == [(J, "x", 1), (J, "x", 1), (J, "y", 2)]
    source.commit(source.update(AUDIT, entry="z", n=3))
    report = yield
    assert list(report.problems) == [AUDIT]
    assert f"{AUDIT} has no key" in report.problems[AUDIT]
    assert len(lake.rows("entry", table=AUDIT)) == 3
    # and when the table gets a key, it goes on where it is
    source.commit(source.delete(AUDIT, entry="x", n=1), source.delete(AUDIT, entry="x", n=1))
    source.commit(source.schema(log, ["n"], AUDIT), source.update(AUDIT, entry="w", n=3))
    report = yield
    assert report.problems == {}
    assert lake.rows("entry", "n", table=AUDIT) == [(J, "w", 3), (J, "y", 2)]


def copied(lake):
    """Rows that a snapshot read (`op` `r`): each is as it was at its position."""
    source, _ = lake.feeds

    def read(name, *keys):
        return (source.read(COPIED, id=i, name=name, balance="1.00") for i in keys)

    # given a copy of a table, and changes of it before the copy was loaded
    source.commit(source.schema(table=COPIED), *read("copied", 1, 2, 3, 4))
    source.commit(source.update(COPIED, id=1, name="changed", balance="1.00"), source.delete(COPIED, id=2))
    yield
    # then no row of the copy replaces what is newer
    assert lake.rows("id", "name", table=COPIED) == [(J, 1, "changed"), (J, 3, "copied"), (J, 4, "copied")]
    # and when rows are copied again to repair them, between changes
    source.commit(source.delete(COPIED, id=3))
    source.commit(*read("repaired", 1, 2, 4))
    source.commit(source.update(COPIED, id=4, name="newest", balance="4.00"))
    report = yield
    # then they replace what is older, and bring back what silver lacked
    assert lake.rows("id", "name", "balance", table=COPIED) == [
        (J, 1, "repaired", Decimal("1.00")),
        (J, 2, "repaired", Decimal("1.00")),
        (J, 4, "newest", Decimal("4.00")),
    ]
    assert report.changes[COPIED] == 5
    stored = lake.spark.read.format("delta").load(bronze.table_path(lake.file, "bank"))
    assert stored.filter("op = 'r'").count() == 7
    assert stored.filter("op = 'r' AND (rekeyed OR partial)").count() == 0
