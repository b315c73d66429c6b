"""T9: where loads cut the log makes no difference: every record is read with the schema that was in force at its position."""

from collections.abc import Callable

import pytest

from spark_jobs.query import published_tables
from tests.lake.logged import LoggedLake

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J, L = "jakarta/bank", "london/bank"
READINGS, ORDERS, LOG = "public.readings", "public.orders", "public.log"


def columns(**kinds: str):
    return {name: (kind, None, None) for name, kind in kinds.items()}


def log(lake: LoggedLake) -> list[Callable[[], object]]:
    """Return the transactions in order: types, keys and columns change again and again."""
    first, other = lake.feeds
    single, double = columns(id="int8", value="float4"), columns(id="int8", value="float8")
    order = columns(id="int8", region="text", note="text")

    def insert(feed, key: int, **more: str):
        return feed.insert(READINGS, id=key, value=0.1, **more)

    return [
        # A float of single precision, and the same column in double precision at the other source.
        lambda: first.commit(first.schema(single, table=READINGS), insert(first, 1), insert(first, 2)),
        # A key of one column, then of two, whose deletes name one column, then two.
        lambda: first.commit(
            first.schema(order, ["id"], ORDERS),
            *(first.insert(ORDERS, id=i, region="eu", note=f"n{i}") for i in range(1, 7)),
            first.delete(ORDERS, id=1),
            first.update(ORDERS, before={"id": 2}, id=12, region="eu", note="moved"),
        ),
        lambda: other.commit(other.schema(double, table=READINGS), insert(other, 1)),
        lambda: first.commit(insert(first, 3), first.schema(double, table=READINGS), insert(first, 4)),
        lambda: first.commit(
            first.delete(ORDERS, id=6),
            first.schema(order, ["id", "region"], ORDERS),
            first.delete(ORDERS, id=3, region="eu"),
            first.update(ORDERS, id=4, region="eu", unchanged=["note"]),
            first.insert(ORDERS, id=4, region="asia", note="second of its id"),
        ),
        lambda: first.commit(first.update(READINGS, id=2, value=0.1), insert(first, 5)),
        lambda: first.commit(
            first.schema(columns(value="float4"), (), LOG),
            first.insert(LOG, value=0.1),
            first.schema(columns(value="float8"), (), LOG),
            first.insert(LOG, value=0.1),
        ),
        lambda: first.commit(
            first.schema(single | columns(gone="text"), table=READINGS), insert(first, 6, gone="g"), insert(first, 7)
        ),
        lambda: other.commit(other.schema(single, table=READINGS), insert(other, 2)),
        lambda: first.commit(first.schema(single, table=READINGS), first.update(READINGS, id=1, value=0.2)),
        lambda: first.commit(
            first.schema(order | columns(uid="int8"), ["id", "region"], ORDERS),
            first.insert(ORDERS, id=7, region="us", note="n", uid=7),
        ),
    ]


def held(lake: LoggedLake):
    """Return all that a lake holds, by table, whatever the order of columns."""
    results = {}
    for name in (READINGS, ORDERS, LOG):
        frame = published_tables.frame(lake.spark, lake.file, "bank", name)
        names = sorted(frame.columns)
        results[name] = (names, sorted(map(str, frame.select(*names).collect())))
    return results


@pytest.mark.long
def test_the_same_log_gives_the_same_tables_wherever_loads_cut_it(logged_lake):
    # given lakes that load once, and after other numbers of transactions
    results = {}
    for size in (11, 4):
        lake = logged_lake()
        for done, commit in enumerate(steps := log(lake), 1):
            commit()
            if done % size == 0 or done == len(steps):
                assert lake.load().problems == {}, (size, done)
        results[size] = held(lake)
    # then
    assert results[11] == results[4]
    single = 0.10000000149011612
    assert lake.rows("id", "value", table=READINGS) == [
        (J, 1, 0.20000000298023224),
        (J, 2, 0.1),
        (J, 3, single),
        (J, 4, 0.1),
        (J, 5, 0.1),
        (J, 6, single),
        (J, 7, single),
        (L, 1, 0.1),
        (L, 2, single),
    ]
    assert lake.rows("id", "region", "note", table=ORDERS) == [
        (J, 12, "eu", "moved"),
        (J, 4, "asia", "second of its id"),
        (J, 4, "eu", "n4"),
        (J, 5, "eu", "n5"),
        (J, 7, "us", "n"),
    ]
