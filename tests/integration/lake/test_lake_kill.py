"""A load that is killed with -9 at its worst moments, and done again: nothing is lost, nothing is doubled."""

from pathlib import Path

import pytest

from spark_jobs.bronze import load as bronze
from spark_jobs.query import published_tables
from spark_jobs.silver import load as silver
from spark_jobs.silver import table_task
from spark_jobs.state import published
from tests.lake.death import killed_when

J = "jakarta/bank"
LOG = {"entry": ("text", None, None)}


def entries(spark, lake):
    return sorted(row["entry"] for row in published_tables.frame(spark, lake, "bank", "public.log").collect())


def accounts(spark, lake):
    return sorted(
        (row["id"], row["name"]) for row in published_tables.frame(spark, lake, "bank", "public.accounts").collect()
    )


def offsets(spark, lake):
    frame = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    return sorted(row["offset"] for row in frame.select("offset").collect())


# B10 and B17
@pytest.mark.long
def test_load_killed_with_one_table_written_and_nothing_published_is_finished_by_the_next(spark, feed, lake_file):
    """What dies right behind bronze's commit is in test_lake_tables.py and test_lake_writers.py."""
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(20)))
    source.commit(
        source.schema(LOG, (), "public.log"), *(source.insert("public.log", entry=f"{i:03}") for i in range(20))
    )
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    # when it dies behind bronze's commit, with one table of silver written and nothing published
    source.commit(
        *(source.update(before={"id": i}, id=i + 100, name="b", balance="1.00") for i in range(10)),
        *(source.delete(id=i) for i in range(10, 15)),
        *(source.insert("public.log", entry=f"{i:03}") for i in range(20, 40)),
    )
    wanted = [
        Path(table_task.path(lake, "bank", name), "_delta_log", f"{1:020d}.json")
        for name in ("public.log", "public.accounts")
    ]
    assert killed_when(lake, "load bank", lambda: any(path.exists() for path in wanted)), "the load was over before"
    assert published.latest(spark, lake, "bank").load == 1
    assert accounts(spark, lake) == [(i, "a") for i in range(20)]
    source.commit(source.insert("public.log", entry="040"), source.delete(id=100))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    # then
    second = offsets(spark, lake)
    assert len(second) == len(set(second)) == 42 + 35 + 2
    assert accounts(spark, lake) == [(i, "a") for i in range(15, 20)] + [(i, "b") for i in range(101, 110)]
    assert entries(spark, lake) == [f"{i:03}" for i in range(41)]
