"""Tables of a load side by side: how many sessions of Spark that takes (L32), and when their commits come."""

import json
from pathlib import Path
from unittest.mock import patch

from pyspark.sql import SparkSession

from spark_jobs.silver import load as silver
from spark_jobs.silver import scd2, table_task
from spark_jobs.state import published

LOG = {"entry": ("text", None, None), "note": ("text", None, None)}
TABLES = ["public.a", "public.b", "public.c"]


def written_and_committed(path: Path, version: int) -> tuple[float, float]:
    """Return when the last data file of a version was written, and when the version was committed."""
    commit = path / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in commit.read_text().splitlines()]
    files = [path / action["add"]["path"] for action in actions if "add" in action]
    return max(file.stat().st_mtime for file in files), commit.stat().st_mtime


def test_l32_tables_are_all_written_before_the_first_is_committed_and_sessions_are_used_again(spark, logged_lake):
    # given three tables, one with a history
    lake = logged_lake('[streams.bank.tables."public.a"]\nhistory = true\n')
    source, _ = lake.feeds
    made = []

    def new(session, really=SparkSession.newSession):
        made.append(session)
        return really(session)

    def load(number):
        """Load one table at a time; return when each table was written, and when it was committed."""
        for table in TABLES:
            row = {"entry": "0", "note": f"{number}"}
            change = source.update(table, **row) if number else source.insert(table, **row)
            source.commit(source.schema(LOG, ("entry",), table), change)
        lake.to_bronze()
        report = silver.load(spark, lake.file, "bank", side_by_side=1)
        assert report.changes == dict.fromkeys(TABLES, 1)
        assert 0 < report.exposed_seconds < report.seconds
        state = published.latest(spark, lake.file, "bank").tables
        places = {table_task.path(lake.file, "bank", name): state[name].version for name in TABLES}
        places[scd2.path(lake.file, "bank", "public.a")] = state["public.a"].history
        return {place: written_and_committed(Path(place), version) for place, version in places.items()}

    # when
    with patch.object(SparkSession, "newSession", new):
        found = [load(number) for number in range(2)]
        first = len(made)
        found.append(load(2))
    # then all was written, the history too, before the first was committed: readers of the newest versions see more than is
    # published for the time of the commits alone
    for times in found:
        assert max(written for written, _ in times.values()) <= min(committed for _, committed in times.values()), times
    # and a load that follows makes no session
    assert len(made) == first <= len(TABLES) + 2
    for table in TABLES:
        assert lake.rows("entry", "note", table=table) == [("jakarta/bank", "0", "2")]
