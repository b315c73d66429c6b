"""A lake on S3 (L5): loaded, killed, resumed, read live and as of a time, and maintained."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest
import requests
from click.testing import CliRunner
from psycopg2.extensions import parse_dsn
from py4j.protocol import Py4JJavaError

from headrace.console.lake import Lake
from spark_jobs import preflight
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import erase, maintain, replay
from spark_jobs.query import engine, published_tables
from spark_jobs.silver import load as silver
from spark_jobs.state import published
from spark_jobs.verify.command import verify
from tests.lake.death import killed_when
from tests.object_store.conftest import BUCKET

#: 2026-01-31, in milliseconds.
EARLY = 1769850900250
_COMMIT = re.compile(r"/_delta_log/\d{20}\.json<")


def names(frame):
    return sorted(row["name"] for row in frame.select("name").collect())


def count_commits(s3, lake):
    """Return how many commits the logs of all tables of a lake have, whatever the server refuses."""
    folder, bucket, asked = lake.root.removeprefix(f"s3a://{BUCKET}/"), f"{s3}/{BUCKET}", {"list-type": "2"}
    count = 0
    while True:
        answer = requests.get(bucket, params=asked | {"prefix": f"{folder}/"}, timeout=30)
        if not answer.ok:
            continue
        count += len(_COMMIT.findall(answer.text))
        after = re.search("<NextContinuationToken>([^<]*)<", answer.text)
        if after is None:
            return count
        asked["continuation-token"] = after[1]


@pytest.mark.timeout(3600)
def test_a_lake_lives_on_s3(spark, s3, s3_lake, feed):
    # given
    source = feed()
    lake = s3_lake(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(20)))
    # when a load is killed after its first commit
    assert killed_when(lake, "load bank", lambda: count_commits(s3, lake) > 0, every=0.05)
    # then the next one goes on from there
    source.commit(source.insert(id=20, name="b", balance="1.00"), at=EARLY + 60_000)
    assert bronze.load(spark, lake, "bank").records == 1
    silver.load(spark, lake, "bank")
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["a"] * 20 + ["b"]
    # and what is not loaded yet is live, and what was is found by time
    source.commit(*(source.delete(id=i) for i in range(20)), at=EARLY + 120_000)
    sql_engine = engine.SqlEngine(spark.newSession(), lake)
    assert names(sql_engine.ask("SELECT name FROM silver_live.accounts")) == ["b"]
    assert names(sql_engine.ask("SELECT name FROM silver.accounts")) == ["a"] * 20 + ["b"]
    sql_engine.close()
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["b"]
    past = engine.SqlEngine(spark.newSession(), lake, as_of=datetime.fromtimestamp(EARLY / 1000 + 90, UTC))
    assert names(past.ask("SELECT name FROM silver.accounts")) == ["a"] * 20 + ["b"]
    past.close()
    # and that a load has nothing to do is known without Spark, as is that it has something
    assert preflight.report(lake, "bank") is not None
    assert preflight.whole(lake, "bank")
    assert preflight.check(lake, "bank")["records"] == 0
    # and the console reads it without Spark, by what the lake's file has of the server
    shown = Lake(lake.root, lake.streams, lake.spark_settings)
    shown.look()
    assert shown.view().problem == ""
    assert [(one.table, one.state) for one in shown.view().tables] == [("public.accounts", "published")]
    assert {one.step for one in shown.view().loads} <= {"bronze", "silver"}
    assert shown.view().offsets["bank"][source.topic, 0] > 21
    # and maintenance leaves it as it is
    assert maintain.maintain(spark, lake, "bank").compacted
    assert preflight.report(lake, "bank") is not None
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["b"]
    assert bronze.load(spark, lake, "bank").records == 0
    # and so does silver done again, all of it
    source.commit(source.insert(id=30, name="c", balance="1.00"), at=EARLY + 180_000)
    assert preflight.report(lake, "bank") is None
    bronze.load(spark, lake, "bank")
    assert preflight.report(lake, "bank", "silver") is None
    silver.load(spark, lake, "bank")
    assert preflight.report(lake, "bank") is not None
    assert replay.of_silver(spark, lake, "bank", None).load is not None
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["b", "c"]


@pytest.mark.timeout(600)
def test_l41_a_log_is_listed_from_a_name_on_however_long_it_is(spark, s3, settings):
    """Delta's own listing of this kind fails with this Hadoop; without one each look took a request for each 1,000 files."""
    log = f"{BUCKET}/long/_delta_log"
    for number in range(2500):
        assert requests.put(f"{s3}/{log}/{number:020d}.json", data=b"{}", timeout=30).ok
    requests.put(f"{s3}/{log}/_sidecars/{'9' * 20}.json", data=b"{}", timeout=30)
    java = spark._jvm
    configuration = spark._jsc.hadoopConfiguration()
    store = java.headrace.ConditionalLogStore(configuration)

    def listed(folder, name):
        return [
            file.getPath().getName()
            for file in store.listFrom(java.org.apache.hadoop.fs.Path(f"s3a://{folder}/{name}"), configuration)
        ]

    before = int(requests.get(f"{s3}/-/pages", timeout=30).text)
    expected = [f"{number:020d}.json" for number in range(2497, 2500)]
    assert [name for name in listed(log, f"{2497:020d}.") if name != "_sidecars"] == expected
    assert [name for name in listed(log, f"{2497:020d}.json") if name != "_sidecars"] == expected
    assert int(requests.get(f"{s3}/-/pages", timeout=30).text) - before == 2
    assert len(listed(log, f"{0:020d}.")) in {2500, 2501}
    # and where there is no log, that is said
    with pytest.raises(Py4JJavaError, match="FileNotFoundException"):
        listed(f"{BUCKET}/none/_delta_log", f"{0:020d}.")


@pytest.mark.timeout(1200)
def test_l52_who_only_asks_needs_no_right_to_write_and_keys_are_references(spark, s3_lake, feed, faults, tmp_path):
    """L52: 'lake sql' tried the server by a PUT, and a 403 was a traceback. S9: keys could not be references."""
    # given a lake, and a file whose keys are elsewhere
    source = feed()
    lake = s3_lake(bank=source.topic)
    source.commit(source.schema(), source.insert(id=1, name="a", balance="1.00"))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    keys = '"spark.hadoop.fs.s3a.access.key" = "env:LAKE_KEY"\n"spark.hadoop.fs.s3a.secret.key" = "file:secret"\n'
    (tmp_path / "secret").write_text("tests\n")
    path = Path(lake.path)
    path.write_text(path.read_text().replace("[spark.settings]\n", f"[spark.settings]\n{keys}", 1))
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")} | {
        "LAKE_KEY": "tests"
    }

    def headrace(*words):
        command = [str(Path(sys.executable).with_name("headrace")), "lake", *words, "--config", str(path)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    # when its keys may only read
    faults(forbid=1)
    asked = headrace("sql", "SELECT name FROM silver.accounts", "--format", "csv")
    maintained = headrace("maintain", "bank")
    # then
    assert (asked.returncode, asked.stdout) == (0, "name\na\n"), asked.stderr
    assert (maintained.returncode, "403" in maintained.stderr) == (3, True), maintained.stderr
    assert "Traceback" not in maintained.stderr


@pytest.mark.timeout(3600)
def test_a_server_that_throttles_is_late_and_loses_answers_changes_nothing(spark, s3_lake, feed, faults, database):
    # given a source of which a third is in the lake
    source = feed()
    lake = s3_lake(bank=source.topic)
    given = parse_dsn(database.dsn)
    database.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, name text, balance numeric(10,2))")
    database.execute("INSERT INTO accounts SELECT n, 'a', 1.00 FROM generate_series(0, 59) n")

    def come(start):
        rows = (source.insert(id=i, name="a", balance="1.00") for i in range(start, start + 20))
        source.commit(*([source.schema()] if not start else []), *rows)
        bronze.load(spark, lake, "bank")
        return silver.load(spark, lake, "bank").problems

    assert come(0) == {}
    # when every third request is refused (503) and each is late
    faults(refuse=3, late=0.05)
    assert come(20) == {}
    # and every other commit is done without an answer, so it is asked for again and finds itself
    faults(lost=2)
    assert come(40) == {}
    faults()
    # then the lake has each row once: in bronze, in silver, and as the database has them
    raw = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    assert (raw.filter("op = 'c'").count(), raw.select("offset").distinct().count()) == (60, raw.count())
    path = Path(lake.path)
    database_of = (
        f'host = "{given["host"]}"\nport = {given["port"]}\ndatabase = "{given["dbname"]}"\nuser = "{given["user"]}"\n'
    )
    path.write_text(
        path.read_text().replace('"jakarta/bank", "london/bank"', '"jakarta/bank"')
        + f'[sources."jakarta/bank".postgresql]\n{database_of}'
    )
    verified = CliRunner().invoke(verify, ["--at-rest", "--config", lake.path], catch_exceptions=False)
    assert (verified.exit_code, verified.output.splitlines()[-1]) == (0, "equal: 1 table of 1 source")


@pytest.mark.timeout(3600)
def test_s18_rows_are_erased_on_a_server_that_throttles_and_loses_answers(spark, s3_lake, feed, faults):
    # given
    source = feed()
    lake = s3_lake(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name=f"person-{i}", balance="1.00") for i in range(6)))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")

    def erased(*keys):
        return erase.erase(spark, lake, "bank", "public.accounts", keys, reason="request 12").counts

    # when every third request is refused, then every other commit has no answer, then both while two do the same
    faults(refuse=3)
    assert erased("1", "2") == {"bronze": 2, "silver": 2, "history": 0, "former": 0, "quarantine": 0}
    faults(lost=2)
    assert erased("3")["silver"] == 1
    faults(refuse=5, lost=2)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(erased, "4") for _ in range(2)]
        assert max(each.result()["silver"] for each in both) == 1
    faults()
    # then
    left = ["person-0", "person-5"]
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == left
    raw = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    assert raw.filter("op = 'c'").count() == 2
    assert replay.of_silver(spark, lake, "bank", None).problems == {}
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == left
    # and loads go on
    source.commit(source.insert(id=4, name="came back", balance="1.00"))
    bronze.load(spark, lake, "bank")
    assert silver.load(spark, lake, "bank").problems == {}
    assert names(published_tables.frame(spark, lake, "bank", "public.accounts")) == ["came back", *left]


#: Commands, each with the names of rows that are there once it is done, None where the table is not, and how many commits it has.
_LEFT, _ALL = ["person-0", "person-2"], ["person-0", "person-1", "person-2"]
_COMMANDS = {
    "erase": [("erase bank public.accounts 1 --reason request-12", _LEFT, 4)],
    "drop": [("drop bank public.accounts", None, 1), ("drop bank public.accounts --undo", _ALL, 1)],
    "others": [("rebuild bank public.accounts", _ALL, 2), ("replay bank", _ALL, 2), ("maintain bank", _ALL, 1)],
}


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("commands", _COMMANDS.values(), ids=_COMMANDS)
def test_s18_commands_that_are_killed_behind_each_of_their_commits_are_ended_on_a_server_that_throttles(
    spark, s3, s3_lake, feed, faults, commands
):
    # given
    source = feed()
    lake = s3_lake(bank=source.topic)
    source.commit(source.schema(), *(source.insert(id=i, name=f"person-{i}", balance="1.00") for i in range(3)))
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")

    def shown():
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        published._read.clear()
        if "public.accounts" not in published.latest(spark, lake, "bank").tables:
            return None
        return names(published_tables.frame(spark, lake, "bank", "public.accounts"))

    for command, after, least in commands:
        kills, before = 0, shown()
        # when requests are refused, commits have no answer, and each run is killed one commit later than the one before
        while True:
            wanted = count_commits(s3, lake) + kills + 1
            faults(refuse=7, lost=3)
            was_killed = killed_when(lake, command, lambda: count_commits(s3, lake) >= wanted, every=0.05)  # noqa: B023 - used at once.
            faults()
            # then readers have what was before, or all of what it does
            assert shown() in (before, after), command
            if not was_killed:
                break
            kills += 1
        assert kills >= least, command
        assert shown() == after, command
    # and loads go on
    source.commit(source.insert(id=3, name="person-3", balance="1.00"))
    bronze.load(spark, lake, "bank")
    assert silver.load(spark, lake, "bank").problems == {}
    assert shown() == [*after, "person-3"]
    if after == _LEFT:
        raw = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
        assert raw.filter("value LIKE '%person-1%'").count() == 0
