"""Rows that a snapshot read (`op` `r`), on their way through bronze and silver: each stands for its row at its position."""

from decimal import Decimal

from spark_jobs.bronze import load as bronze
from spark_jobs.query import published_tables


def test_rows_of_a_snapshot_take_their_place_among_the_changes(spark, feed, lake_file, loaded):
    # Given a copy of a table, and changes of it before the copy was loaded.
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), *(source.read(id=i, name="copied", balance="1.00") for i in (1, 2, 3, 4)))
    source.commit(source.update(id=1, name="changed", balance="2.00"), source.delete(id=2))

    def rows():
        return sorted(
            published_tables.frame(spark, lake, "bank", "public.accounts").select("id", "name", "balance").collect()
        )

    # When it is loaded, then no row of the copy stands over what is newer.
    loaded(lake)
    assert rows() == [(1, "changed", Decimal("2.00")), (3, "copied", Decimal("1.00")), (4, "copied", Decimal("1.00"))]

    # And when rows are copied again to repair them, between changes.
    source.commit(source.delete(id=3))
    source.commit(*(source.read(id=i, name="repaired", balance="3.00") for i in (1, 2, 4)))
    source.commit(source.update(id=4, name="newest", balance="4.00"))
    report = loaded(lake)

    # Then they replace what is older, bring back what silver lacked, and stand under what is newer.
    assert rows() == [
        (1, "repaired", Decimal("3.00")),
        (2, "repaired", Decimal("3.00")),
        (4, "newest", Decimal("4.00")),
    ]
    assert report.changes == {"public.accounts": 5}
    stored = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    assert stored.filter("op = 'r'").count() == 7
    assert stored.filter("op = 'r' AND (rekeyed OR partial)").count() == 0
