"""Older records go from bronze, and all that does not need them goes on; what does is refused with where it can start."""

import shutil
from pathlib import Path

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import NeedsOperator
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain, replay
from spark_jobs.query import overlay_databases
from spark_jobs.silver import rebuild
from spark_jobs.state import published

pytestmark = pytest.mark.timeout(1500)

ACCOUNTS = "public.accounts"
J, L = "jakarta/bank", "london/bank"


def test_older_records_go_from_bronze_and_loads_go_on_without_them(logged_lake):
    # given records of a month ago
    lake = logged_lake("history = true\n")
    one, _ = lake.feeds
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.insert(id=1, name="old", balance="1"))
        feed.commit(feed.update(id=1, name="older", balance="1"))
    lake.load()
    path = bronze.table_path(lake.file, "bank")
    # records have their age in a column
    lake.spark.sql(f"UPDATE delta.`{path}` SET timestamp = timestamp - INTERVAL 30 DAYS")
    one.commit(one.insert(id=2, name="new", balance="1"))
    lake.load()
    last = published.latest(lake.spark, lake.file, "bank")
    text = Path(lake.file.path).read_text().replace('root = "lake"', 'root = "lake"\nbronze_keep_days = 20')
    Path(lake.file.path).write_text(text)
    lake.file = load_file(Path(lake.file.path), LakeFile)
    # when
    maintain.maintain(lake.spark, lake.file, "bank")
    # then the schema records, and the last one that is published of a quiet source, are left of them
    rows = lake.spark.read.format("delta").load(path)
    left = rows.filter("op IS NOT NULL").groupBy("source").count().collect()
    assert sorted(map(tuple, left)) == [(J, 1), (L, 1)]
    assert rows.filter("op IS NULL").count() == 2
    # and no file has the others still, marked by a vector
    assert not [file for file in Path(path, "_delta_log").glob("*.json") if '"deletionVector":{' in file.read_text()]
    removed = published.latest(lake.spark, lake.file, "bank").bronze_removed
    assert set(removed) == {J, L}
    assert all(removed[source] < last.positions[source] for source in removed)
    # and it is done once
    assert maintain.remove_old_records(lake.spark, lake.file, "bank") == {}
    # loads go on, with history
    one.commit(one.update(id=1, name="newest", balance="2"))
    assert lake.load().problems == {}
    names = [(J, 1, "newest"), (J, 2, "new"), (L, 1, "older")]
    assert lake.rows("id", "name") == names
    # what needs older records is refused, and changes nothing
    with pytest.raises(NeedsOperator, match=f"it has those of {J} after {removed[J]}, {L} after"):
        replay.of_silver(lake.spark, lake.file, "bank")
    with pytest.raises(NeedsOperator, match=f"{ACCOUNTS} needs records that were removed"):
        rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
    assert replay.of_silver(lake.spark, lake.file, "bank", last.positions).problems == {}
    moment = overlay_databases.find_moment(
        lake.spark, lake.file, "bank", published.latest(lake.spark, lake.file, "bank").finished_at
    )
    assert moment.tables() == [ACCOUNTS]
    assert lake.rows("id", "name") == names
    # a table whose folder is lost stops, until both sources have copied it
    shutil.rmtree(f"{lake.file.root}/silver/bank/{ACCOUNTS}")
    problem = lake.load().problems[ACCOUNTS]
    assert "needs records that were removed from bronze" in problem
    for feed in lake.feeds:
        feed.commit(feed.schema(), feed.truncate())
        feed.commit(feed.read(id=5, name="copied", balance="1"))
    lake.load()
    rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
    assert lake.rows("id", "name") == [(J, 5, "copied"), (L, 5, "copied")]
