"""Several processes that load one stream at the same time (L3, L4): each record once, and the one that lost can be run again."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from headrace.verify.postgres.database import SourceDatabase
from spark_jobs.bronze import load as bronze
from spark_jobs.query import published_tables
from spark_jobs.silver import load as silver
from spark_jobs.verify import lake as verified_lake
from spark_jobs.verify.verify import verify
from tests.lake.verify_sides import SOURCE, address
from tests.rules.waiting import eventually

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

ROOT = Path(__file__).parents[3]
MANY = 2000


class Writer:
    """Another process that loads bronze, and stops at a step."""

    def __init__(self, lake) -> None:
        command = [sys.executable, "-m", "tests.lake.writer", str(lake.path), "bank"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, start_new_session=True
        )
        self._pool = ThreadPoolExecutor(1)
        assert self._line() == "ready"

    def starts(self, step: str = "") -> None:
        print(step, file=self._process.stdin, flush=True)

    def stops(self) -> None:
        assert self._line() == "stopped"
        eventually(lambda: psutil.Process(self._process.pid).status() == psutil.STATUS_STOPPED)

    def ends(self, *, continued: bool = False) -> str:
        if continued:
            self._signal(signal.SIGCONT)
        return self._line()

    def _signal(self, number: int) -> None:
        os.killpg(self._process.pid, number)

    def _line(self) -> str:
        return self._pool.submit(self._process.stdout.readline).result(240).strip()

    def close(self) -> None:
        self._signal(signal.SIGKILL)
        self._process.wait()
        self._pool.shutdown()


@pytest.fixture
def writer() -> Iterator:
    """Return a function that starts a second process; it is gone with the test."""
    started = []

    def start(lake) -> Writer:
        started.append(Writer(lake))
        return started[-1]

    yield start
    for each in started:
        each.close()


def places(spark, lake):
    """Return the offsets in the table, each as often as it is there."""
    frame = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    return sorted(row["offset"] for row in frame.select("offset").collect())


# L3
@pytest.mark.long
def test_a_load_that_slept_while_others_ran_adds_nothing_twice(spark, feed, lake_file, writer):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    other = writer(lake)
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in range(MANY)))
    sent, held = MANY + 1, 0
    for number, step in enumerate(("writing", "noted", "committed")):
        # when it is stopped at a step, of the table's first load too, and another load runs
        other.starts(step)
        other.stops()
        source.commit(source.insert(id=number, name="b", balance="1.00"))
        mine = bronze.load(spark, lake, "bank").records
        sent += 1
        # then the table has each record once, whoever wrote it
        assert mine == (1 if step == "committed" else sent - held)
        ended = other.ends(continued=True)
        known = places(spark, lake)
        assert len(known) == len(set(known)) == sent, step
        if step == "committed":
            assert ended == f"loaded {MANY}"
        else:
            assert ended.startswith("Retryable "), step
            assert "another load" in ended
        held = sent
        source.commit(*(source.insert(id=i, name="c", balance="1.00") for i in range(MANY)))
        sent += MANY
    # and the one that lost can be run again
    other.starts()
    assert other.ends() == f"loaded {MANY}"
    # and a load that never ends goes on by itself after it lost
    with bronze.following(spark, lake, "bank", every=0.2) as follower:
        source.commit(source.insert(id=1, name="d", balance="1.00"))
        eventually(lambda: len(places(spark, lake)) == sent + 1, 120)
        for number in range(2):
            other.starts()
            source.commit(source.insert(id=number, name="e", balance="1.00"))
            other.ends()
        eventually(lambda: len(places(spark, lake)) == sent + 3, 120)
        follower.check()
    known = places(spark, lake)
    assert len(known) == len(set(known)) == sent + 3


@pytest.mark.long
def test_l4_a_load_of_silver_that_slept_while_another_published_adds_nothing_twice(logged_lake, writer):
    # given a table with a key, and one without
    lake = logged_lake()
    source, _ = lake.feeds
    entries = []

    def change():
        entries.append(f"{len(entries):03}")
        source.commit(
            source.insert("public.log", entry=entries[-1]), source.update(id=1, name=entries[-1], balance="1.00")
        )
        lake.to_bronze()

    source.commit(source.schema(), source.schema({"entry": ("text", None, None)}, (), "public.log"))
    change()
    lake.load()
    other = writer(lake.file)
    for step in ("silver, merging", "silver, publishing"):
        # when another process is stopped at a step, and a load here goes further
        change()
        other.starts(step)
        other.stops()
        change()
        lake.load()
        # then the other one publishes nothing
        assert other.ends(continued=True).startswith("Retryable "), step
    # and can be run again
    change()
    other.starts("silver")
    assert other.ends() == "loaded 2"
    assert lake.rows("entry", table="public.log") == [("jakarta/bank", entry) for entry in entries]
    assert lake.rows("id", "name") == [("jakarta/bank", 1, entries[-1])]


@pytest.mark.long
def test_verify_next_to_loads_of_another_process_is_right_and_adds_nothing_twice(
    spark, feed, lake_file, writer, database, monkeypatch
):
    # given a source whose log is as the lake has it
    monkeypatch.setattr(verified_lake, "_LATELY", 1.0)
    database.execute("CREATE TABLE accounts (id bigint PRIMARY KEY, name text, balance numeric(10,2))")
    source, sent = feed(), 1
    lake = lake_file(bank=source.topic)
    other = writer(lake)

    def insert(number):
        nonlocal sent
        database.execute("INSERT INTO accounts VALUES (%s, 'a', 1)", [number])
        ((source._lsn,),) = database.execute("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")
        source.commit(source.insert(id=number, name="a", balance="1.00"))
        sent += 1

    source.commit(source.schema())
    for number, step in enumerate(("noted", "committed", "silver, merging", "silver, publishing")):
        insert(number)
        if step.startswith("silver"):
            bronze.load(spark, lake, "bank")
        if step == "silver, merging":
            # A table is there to be merged into.
            other.starts("silver")
            assert other.ends() == "loaded 5"
            insert(100 + number)
            bronze.load(spark, lake, "bank")
        # when another process is stopped in its load, and the source goes on after verify's snapshot
        other.starts(step)
        other.stops()
        side = verified_lake.LakeAt(spark, lake, "bank")
        try:
            with SourceDatabase.connect(SOURCE, address(database.dsn), placed=True) as snapshot:
                insert(1000 + number)
                assert side.advance(SOURCE, snapshot, seconds=120, on_progress=lambda _: None).proven, step
                # then both are equal, where the snapshot was taken
                (report,) = verify(SOURCE, snapshot, side)
        finally:
            side.close()
        assert report.equal, step
        ended = other.ends(continued=True)
        assert ended.startswith(("loaded ", "Retryable ")), ended
        known = places(spark, lake)
        assert len(known) == len(set(known)) == sent, step
    # and silver has every row once
    silver.load(spark, lake, "bank")
    rows = published_tables.frame(spark, lake, "bank", "public.accounts").select("id").collect()
    assert sorted(row["id"] for row in rows) == [
        row for (row,) in database.execute("SELECT id FROM accounts ORDER BY id")
    ]
