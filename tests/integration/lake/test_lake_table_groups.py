"""Tables brought up by tasks of their own, group by group, and published together by the load that follows."""

import pytest

from spark_jobs.query import published_tables
from spark_jobs.silver import load, table_task
from spark_jobs.silver.tables_load import TableGroup
from spark_jobs.state import delta_log, published

LOG, ACCOUNTS, TELLERS = "public.log", "public.accounts", "public.tellers"
BOTH = [TableGroup(1, 2), TableGroup(2, 2)]


def rows(spark, lake, name, *columns):
    return sorted(tuple(row) for row in published_tables.frame(spark, lake, "bank", name).select(*columns).collect())


def versions(spark, lake, name):
    return spark.read.format("delta").load(table_task.history_path(lake, "bank", name)).count()


def commits(spark, lake):
    return {name: delta_log.version(spark, table_task.path(lake, "bank", name)) for name in (LOG, ACCOUNTS, TELLERS)}


@pytest.mark.long
def test_groups_of_tables_are_brought_up_ahead_and_published_by_the_load(spark, logged_lake):
    # given
    logged = logged_lake(f'[streams.bank.tables."{ACCOUNTS}"]\nhistory = true\n')
    source, lake = logged.feeds[0], logged.file
    source.commit(
        source.schema(), source.schema(table=TELLERS), source.schema({"entry": ("text", None, None)}, (), LOG)
    )

    def change(number, name):
        source.commit(
            source.update(id=1, name=name, balance="1.00"),
            source.update(TELLERS, id=1, name=name, balance="1.00"),
            source.insert(LOG, entry=f"{number}"),
        )
        logged.to_bronze()

    def group(one):
        return load.load(spark, lake, "bank", group=one)

    # when the first load of all has one of its groups, and the task of the other died
    change(1, "a")
    first = group(BOTH[0])
    # then nothing is published, and the load does the rest
    assert (first.load, first.changes) == (None, {LOG: 1})
    assert published.latest(spark, lake, "bank").load == 0
    assert load.load(spark, lake, "bank").changes == {LOG: 1, ACCOUNTS: 1, TELLERS: 1}
    # when all groups are brought up, one of them twice, and more comes to bronze before the load
    change(2, "b")
    assert [group(one).changes for one in (*BOTH, BOTH[1])] == [
        {LOG: 1}, {ACCOUNTS: 1, TELLERS: 1}, {ACCOUNTS: 1, TELLERS: 1}
    ]  # fmt: skip
    # then readers see what was published
    assert rows(spark, lake, ACCOUNTS, "id", "name") == rows(spark, lake, TELLERS, "id", "name") == [(1, "a")]
    assert rows(spark, lake, LOG, "entry") == [("1",)]
    change(3, "c")
    done = load.load(spark, lake, "bank")
    assert (done.load, done.changes, done.problems) == (2, {LOG: 2, ACCOUNTS: 2, TELLERS: 2}, {})
    assert rows(spark, lake, ACCOUNTS, "id", "name") == rows(spark, lake, TELLERS, "id", "name") == [(1, "c")]
    assert rows(spark, lake, LOG, "entry") == [("1",), ("2",), ("3",)]
    assert versions(spark, lake, ACCOUNTS) == 3
    # and what was brought up whole is published without a change to its tables
    change(4, "d")
    before = {one: group(one).changes for one in BOTH}
    written = commits(spark, lake)
    assert load.load(spark, lake, "bank").changes == before[BOTH[0]] | before[BOTH[1]]
    assert commits(spark, lake) == written
    assert rows(spark, lake, ACCOUNTS, "id", "name") == [(1, "d")]
