"""Silver on real Delta tables, from Kafka on: current rows by source and key, and whole transactions."""

from decimal import Decimal

import pytest

from spark_jobs import preflight
from spark_jobs.bronze import load as bronze
from tests.lake.reading import rows

J, L = "jakarta/bank", "london/bank"


@pytest.mark.long
def test_rows_are_current_by_source_and_key(spark, feed, lake_file, loaded):
    # given two sources with the same keys
    one = feed(J, partitions=2)
    other = feed(L, into=one.topic, partition=1)
    lake = lake_file(bank=one.topic)
    one.commit(one.schema(), *(one.insert(id=i, name="a", balance="1.50") for i in (1, 2, 3)))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="9.99"))
    first = loaded(lake)
    assert preflight.report(lake, "bank").plain()["silver"]["changes"] == {}
    # when
    one.commit(one.update(id=1, name="b", balance="2.50"), one.delete(id=2), one.insert(id=4, name="d", balance="0.00"))
    one.commit(one.update(id=1, name="c", balance="3.50"), one.delete(id=4))
    one.commit(one.insert(id=2, name="again", balance="-7.00"))
    assert preflight.report(lake, "bank") is None
    assert preflight.report(lake, "bank", "silver") is not None
    bronze.load(spark, lake, "bank")
    assert preflight.report(lake, "bank", "silver") is None
    second = loaded(lake)
    third = loaded(lake)
    # then
    assert rows(spark, lake) == [
        (J, 1, "c", Decimal("3.50")),
        (J, 2, "again", Decimal("-7.00")),
        (J, 3, "a", Decimal("1.50")),
        (L, 1, "theirs", Decimal("9.99")),
    ]
    assert (first.load, second.load, third.load) == (1, 2, None)
    assert (first.changes, second.changes) == ({"public.accounts": 4}, {"public.accounts": 6})
    assert set(second.ranges) == {J}
    # when half a transaction is there
    one.commit(one.update(id=1, name="half", balance="1.00"), one.insert(id=9, name="half", balance="0"), ends=False)
    other.commit(other.delete(id=1))
    report = loaded(lake)
    # then it is not shown, and another source goes on
    assert [(key, name) for source, key, name, _ in rows(spark, lake) if source == J] == [
        (1, "c"),
        (2, "again"),
        (3, "a"),
    ]
    assert (set(report.ranges), report.waiting, report.changes) == ({L}, {J: 2}, {"public.accounts": 1})
    # and when the rest of it is there
    one.commit(one.insert(id=10, name="whole", balance="0"))
    loaded(lake)
    assert [name for _, _, name, _ in rows(spark, lake)] == ["half", "again", "a", "half", "whole"]
