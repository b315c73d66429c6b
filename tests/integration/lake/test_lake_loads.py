"""What each step of a load did, as a table that can be asked."""

import logging
from contextlib import closing

from spark_jobs import load as job
from spark_jobs.query.engine import SqlEngine


def test_each_step_of_a_load_is_a_row_with_its_ranges_rows_files_seconds_and_lag(spark, feed, lake_file, caplog):
    # Given two loads that did something, and one that found nothing.
    source = feed("jakarta/bank")
    lake = lake_file(bank=source.topic)
    first = source.commit(source.schema(), source.insert(id=1, name="Ana", balance="1.00"))
    with caplog.at_level(logging.INFO, "spark_jobs.run_log"):
        job.run(spark, lake, "bank")
    last = source.commit(source.insert(id=2, name="Ben", balance="2.00"), source.delete(id=1))
    report = job.run(spark, lake, "bank")
    assert job.run(spark, lake, "bank").lag == {}

    # When the table is asked.
    with closing(SqlEngine(spark, lake)) as sql_engine:
        rows = sql_engine.ask("SELECT * FROM headrace.loads ORDER BY finished_at, step").collect()

    # Then there is a row for each step that did something.
    assert [(row["step"], row["load"], row["rows"]) for row in rows] == [
        ("bronze", None, 2),
        ("silver", 1, 1),
        ("bronze", None, 2),
        ("silver", 2, 2),
    ]
    assert [row["offsets"][0]["first"] for row in rows if row["step"] == "bronze"] == [0, 3]
    assert [(each["after"], each["upto"]) for row in rows if row["step"] == "silver" for each in row["sources"]] == [
        (None, first),
        (first, last),
    ]
    assert [(each["table"], each["changes"]) for each in rows[3]["tables"]] == [("public.accounts", 2)]
    assert all(row["files"] >= 1 and row["seconds"] > 0 and row["started_at"] < row["finished_at"] for row in rows)
    # The feed's commits are dated, and the lag follows from them.
    assert report.lag == {"jakarta/bank": rows[3]["sources"][0]["lag_seconds"]}
    assert report.lag["jakarta/bank"] > 0
    assert any("silver bank: 1 rows" in message and f"to {first}" in message for message in caplog.messages)


def test_a_record_that_cannot_be_written_fails_no_load(spark, feed, lake_file, tmp_path, caplog):
    source = feed("jakarta/bank")
    lake = lake_file(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="Ana", balance="1.00"))
    (tmp_path / "lake" / "loads").mkdir(parents=True)
    (tmp_path / "lake" / "loads" / "notes.txt").write_text("mine")

    report = job.run(spark, lake, "bank")

    assert report.silver.load == 1
    assert any("not recorded" in message for message in caplog.messages)
