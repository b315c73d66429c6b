"""A table that is copied again is published when its copy is complete: readers see the old rows until then (L34)."""

import pytest

from headrace.errors import NeedsOperator
from spark_jobs.maintenance import replay
from spark_jobs.query import engine
from spark_jobs.silver import rebuild
from spark_jobs.state import published

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

J, L = "jakarta/bank", "london/bank"
EMPTY = {"id": ("int8", None, None)}


def names(lake):
    return [(source, name) for source, name in lake.rows("name")]


def live(spark, lake):
    sql_engine = engine.SqlEngine(spark.newSession(), lake.file)
    try:
        rows = sql_engine.ask("SELECT _source, name FROM silver_live.accounts").collect()
        return sorted(map(tuple, rows), key=str)
    finally:
        sql_engine.close()


@pytest.mark.long
def test_l34_a_copy_is_published_when_it_is_complete(spark, logged_lake):
    # given
    lake = logged_lake()
    jakarta, london = lake.feeds

    def state(table="public.accounts"):
        return published.latest(spark, lake.file, "bank").tables[table]

    for feed in lake.feeds:
        feed.commit(feed.schema(), *(feed.insert(id=i, name=f"old {i}", balance="1.00") for i in (1, 2)))
    lake.load()
    old = [(source, f"old {i}") for source in (J, L) for i in (1, 2)]
    # when one source begins to copy the table again, which takes several loads, and the other goes on
    jakarta.commit(jakarta.copy_begins(), jakarta.truncate())
    jakarta.commit(jakarta.read(id=1, name="new 1", balance="1.00"))
    lake.load()
    assert (names(lake), live(spark, lake)) == (old, old)
    jakarta.commit(jakarta.read(id=3, name="new 3", balance="1.00"))
    london.commit(london.insert(id=3, name="while", balance="1.00"))
    lake.load()
    # then its rows stay as they were, live too, while those of the other come
    old.append((L, "while"))
    assert (names(lake), live(spark, lake)) == (sorted(old), sorted(old))
    assert list(state().copying) == [J]
    assert lake.load().load is None
    # and what makes tables again shows no part of the copy either
    replay.of_silver(spark, lake.file, "bank")
    assert names(lake) == sorted(old)
    # when the copy is complete
    jakarta.commit(jakarta.copy_ends())
    new = [(J, "new 1"), (J, "new 3"), (L, "old 1"), (L, "old 2"), (L, "while")]
    lake.to_bronze()
    assert live(spark, lake) == new
    lake.load()
    # then all of it is there
    assert (names(lake), live(spark, lake)) == (new, new)
    assert (state().copying, state().positions) == ({}, published.latest(spark, lake.file, "bank").positions)
    # and a copy whose edge marks nothing is shown as it comes
    jakarta.commit(jakarta.truncate(), jakarta.read(id=4, name="unmarked", balance="1.00"))
    lake.load()
    assert names(lake) == [(J, "unmarked"), *new[2:]]


@pytest.mark.long
def test_l34_a_first_copy_is_published_when_it_is_complete(spark, logged_lake):
    # given a table that nobody has seen, copied while it changes, and an empty one
    lake = logged_lake()
    source, _ = lake.feeds
    more = {"table": "public.empty"}
    source.commit(source.copy_begins(), source.read(id=1, name="first", balance="1.00"))
    source.commit(source.copy_begins(EMPTY, **more))
    lake.load()
    # then it is not there
    assert {name: table.version for name, table in published.latest(spark, lake.file, "bank").tables.items()} == {
        "public.accounts": None,
        "public.empty": None,
    }
    # when
    source.commit(source.insert(id=2, name="second", balance="1.00"))
    source.commit(source.copy_ends(EMPTY, **more))
    lake.load()
    assert published.latest(spark, lake.file, "bank").tables["public.accounts"].version is None
    source.commit(source.copy_ends())
    lake.load()
    # then
    assert names(lake) == [(J, "first"), (J, "second")]
    # and a copy that begins and ends within one load is there at once
    source.commit(source.copy_begins(), source.truncate())
    source.commit(source.read(id=3, name="third", balance="1.00"), source.copy_ends())
    lake.load()
    assert names(lake) == [(J, "third")]
    with pytest.raises(NeedsOperator):
        rebuild.rebuild(spark, lake.file, "bank", "public.missing")
