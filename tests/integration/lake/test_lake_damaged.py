"""Tables that something else than a load has changed: files missing or damaged, restored, altered, vacuumed; clocks that jump.

Each is an error that names the table and what to do, readers see what was published, and nothing is published in part. What a
load of release 0.1 leaves when it dies is none of these.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import NeedsOperator
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain, replay
from spark_jobs.silver import table_task
from spark_jobs.state import published
from tests.lake.age import age
from tests.lake.death import dying_before_it_publishes
from tests.lake.logged import LoggedLake

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

J, ACCOUNTS, LOG = "jakarta/bank", "public.accounts", "public.log"
ENTRY = {"entry": ("text", None, None)}


@pytest.fixture(scope="module")
def loaded_bank(spark, tmp_path_factory):
    """Return a lake with two published states of two tables, one of them with history."""
    lake = LoggedLake(spark, tmp_path_factory.mktemp("bank"), f'[streams.bank.tables."{ACCOUNTS}"]\nhistory = true\n')
    one, _ = lake.feeds
    one.commit(one.schema(), one.insert(id=1, name="a", balance="1.00"))
    one.commit(one.schema(ENTRY, (), LOG), one.insert(LOG, entry="a"))
    lake.load()
    change(lake, "b")
    lake.load()
    return lake


@pytest.fixture
def bank(loaded_bank, tmp_path):
    """Return a copy of that lake."""
    return loaded_bank.copy_to(tmp_path / "bank")


def change(lake, name: str) -> None:
    one, _ = lake.feeds
    one.commit(one.update(id=1, name=name, balance="1.00"), one.insert(LOG, entry=name))


def state(lake):
    return published.latest(lake.spark, lake.file, "bank")


def forget(lake) -> None:
    """Have Delta read its logs again."""
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    published._read.clear()


def newest(path: str, folder: str = "_delta_log", pattern: str = "*.json") -> Path:
    return max(Path(path, folder).glob(pattern), key=lambda file: (file.stat().st_mtime_ns, file.name))


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def zeroed(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


@contextmanager
def damaged(lake, file: Path, how: Callable[[Path], None]) -> Iterator[None]:
    """Damage a file for a while; without the checksum by which Hadoop alone would find it."""
    kept, checksum = file.read_bytes(), file.with_name(f".{file.name}.crc")
    checksum.unlink(missing_ok=True)
    how(file)
    forget(lake)
    try:
        yield
    finally:
        file.write_bytes(kept)
        forget(lake)


@pytest.mark.long
@pytest.mark.parametrize("some", [True, False], ids=["some", "all"])
def test_damaged_files_of_a_table_stop_it_alone_and_the_rest_goes_on(bank, some):
    lake = bank
    table = table_task.path(lake.file, "bank", ACCOUNTS)
    history = table_task.history_path(lake.file, "bank", ACCOUNTS)
    cases = [(newest(table), cut), (newest(table, ".", "part-*.parquet"), zeroed), (newest(history), cut)]
    if not some:
        cases += [
            (newest(table), Path.unlink),
            (Path(table, "_delta_log", f"{0:020d}.json"), Path.unlink),
            (newest(table, ".", "part-*.parquet"), Path.unlink),
        ]
    for number, (file, how) in enumerate(cases):
        change(lake, str(number))
        before = state(lake)
        with damaged(lake, file, how):
            # when
            report = lake.load()
        # then that table stopped, where it was published, with the reason and a remedy
        after = state(lake)
        case = f"{file} {how.__name__}"
        assert list(report.problems) == [ACCOUNTS], case
        assert "headrace lake replay" in report.problems[ACCOUNTS], case
        assert str(number) not in {name for _, name in lake.rows("name")}, case
        assert after.tables[ACCOUNTS].version == before.tables[ACCOUNTS].version, case
        assert after.tables[ACCOUNTS].history == before.tables[ACCOUNTS].history, case
        # and the other one goes on
        assert (J, str(number)) in lake.rows("entry", table=LOG), case
    # and with its files back the table goes on
    change(lake, "whole")
    assert lake.load().problems == {}
    assert lake.rows("name") == [(J, "whole")]


def test_damaged_bronze_or_state_stops_the_load_and_publishes_nothing(bank):
    lake = bank
    raw = bronze.table_path(lake.file, "bank")
    change(lake, "c")
    lake.to_bronze()
    before = state(lake)
    log, rows = newest(raw), newest(raw, ".", "part-*.parquet")
    cases = [(log, cut), (newest(published.path(lake.file)), cut), (rows, Path.unlink), (rows, zeroed)]
    for file, how in cases:
        with damaged(lake, file, how), pytest.raises(NeedsOperator) as stopped:
            lake.load()
        assert "missing or damaged" in stopped.value.message, how.__name__
        assert any(part in stopped.value.message for part in ("bronze", "state")), stopped.value.message
        assert "headrace lake replay" in stopped.value.hint
        assert state(lake) == before
    assert lake.load().problems == {}
    assert lake.rows("name") == [(J, "c")]


@pytest.mark.long
def test_table_that_somebody_else_changed_stops_until_it_is_replayed(bank):
    # given a table that somebody has restored, one that somebody has written to
    lake = bank
    accounts, log = (table_task.path(lake.file, "bank", name) for name in (ACCOUNTS, LOG))
    lake.spark.sql(f"RESTORE TABLE delta.`{accounts}` TO VERSION AS OF 0")
    lake.spark.sql(f"DELETE FROM delta.`{log}`")
    before = state(lake)
    # when
    change(lake, "c")
    report = lake.load()
    # then
    assert report.problems.keys() == {ACCOUNTS, LOG}
    assert "public.accounts: version" in report.problems[ACCOUNTS]
    assert "somebody else (RESTORE)" in report.problems[ACCOUNTS]
    assert "somebody else (DELETE)" in report.problems[LOG]
    assert lake.rows("name") == [(J, "b")]
    assert lake.rows("entry", table=LOG) == [(J, "a"), (J, "b")]
    assert {name: table.version for name, table in state(lake).tables.items()} == {
        name: table.version for name, table in before.tables.items()
    }
    # when
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    # then
    assert lake.rows("name") == [(J, "c")]
    change(lake, "d")
    assert lake.load().problems == {}
    assert lake.rows("name") == [(J, "d")]
    assert len(lake.rows("entry", table=LOG)) == 4


def as_release_0_1(table: str, after: int) -> list[str]:
    """Write the commits after a version as release 0.1 did, with a note at the last one alone; return what each does."""
    done = []
    for file in sorted(Path(table, "_delta_log").glob("*.json")):
        if int(file.stem) <= after:
            continue
        actions = [json.loads(line) for line in file.read_text().splitlines()]
        (info,) = (each["commitInfo"] for each in actions if "commitInfo" in each)
        note = json.loads(info.pop("userMetadata"))
        if note["headrace"] != "columns":
            info["userMetadata"] = json.dumps({k: v for k, v in note.items() if k not in {"attempt", "number"}})
        done.append(info["operation"])
        kept = [each for each in actions if "txn" not in each]
        file.write_text("".join(f"{json.dumps(each)}\n" for each in kept))
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
        # Delta's own checksums, of what a table has after a commit.
        file.with_suffix(".crc").unlink(missing_ok=True)
    return done


@pytest.mark.long
@pytest.mark.parametrize("merged", [False, True], ids=["before its MERGE", "before it publishes"])
def test_load_of_release_0_1_that_died_after_it_changed_columns_is_finished(bank, merged):
    # given a load that adds a column to a table and its history and widens one, and dies
    lake = bank
    one, _ = lake.feeds
    before = state(lake)
    wider = {"id": ("int8", None, None), "name": ("text", None, None), "balance": ("numeric", 12, 2)}
    one.commit(one.schema(wider | {"note": ("text", None, None)}))
    one.commit(one.update(id=1, name="c", balance="2.00", note="n"))
    with dying_before_it_publishes(lake.file):
        assert lake.load().problems == {}
    folders = {
        "version": table_task.path(lake.file, "bank", ACCOUNTS),
        "history": table_task.history_path(lake.file, "bank", ACCOUNTS),
    }
    for name, folder in folders.items():
        published_version = getattr(before.tables[ACCOUNTS], name)
        done = as_release_0_1(folder, published_version)
        assert {"ADD COLUMNS", "CHANGE COLUMN", "MERGE"} <= set(done)
        if not merged:
            for number in range(published_version + 1 + done.index("MERGE"), published_version + 1 + len(done)):
                Path(folder, "_delta_log", f"{number:020d}.json").unlink()
    forget(lake)
    # when this release loads
    report = lake.load()
    # then
    assert report.problems == {}
    assert lake.rows("name", "cast(balance AS string)", "note") == [(J, "c", "2.00", "n")]
    history = lake.spark.read.format("delta").load(folders["history"])
    assert sorted(row["name"] for row in history.collect()) == ["a", "b", "c"]


@pytest.mark.long
def test_table_that_was_vacuumed_too_early_names_the_remedy_that_works(bank):
    # given the files of the published version are gone
    lake = bank
    table = table_task.path(lake.file, "bank", ACCOUNTS)
    shutil.copytree(table, f"{table}.kept")
    for file in Path(table).glob("part-*.parquet"):
        file.unlink()
    forget(lake)
    # when
    change(lake, "c")
    report = lake.load()
    # then
    assert list(report.problems) == [ACCOUNTS]
    assert "missing or damaged" in report.problems[ACCOUNTS]
    # when
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    # then
    assert lake.rows("name") == [(J, "c")]


@pytest.mark.long
def test_clock_that_jumps_back_or_ahead_loses_nothing(bank):
    lake = bank
    # given a lake whose files are of a time that is still to come
    age(lake.spark, lake.file, -3)
    forget(lake)
    change(lake, "c")
    # when it is loaded and maintained by a clock that is days behind, and then by one that is right again
    for name, days in (("c", 20), ("d", -17)):
        assert lake.load().problems == {}
        assert maintain.maintain(lake.spark, lake.file, "bank").skipped == []
        assert lake.rows("name") == [(J, name)]
        age(lake.spark, lake.file, days)
        forget(lake)
        change(lake, "d")
    # then
    assert lake.load().problems == {}
    assert lake.rows("name") == [(J, "d")]
    assert [entry for _, entry in lake.rows("entry", table=LOG)] == ["a", "b", "c", "d", "d"]
