"""Commands of the lake killed with -9 behind each of their commits, and two of each at once: what they do is done in the end."""

import pytest

from headrace.errors import Retryable
from spark_jobs.maintenance import drop
from spark_jobs.silver import rebuild
from spark_jobs.state import published
from tests.lake import erasing
from tests.lake.death import count_commits, killed_when, start
from tests.lake.erasing import ACCOUNTS, FORMER, NAME, J, L, add_tombstone, history_of, keep_in_quarantine

pytestmark = [pytest.mark.long, pytest.mark.timeout(3000)]

KEPT, OTHER, ERASED = (J, 1, "kept"), (L, 7, "another person"), (J, 7, NAME)
#: Each with the rows that are there once it is done, beside those that loads bring; None where the table is not.
COMMANDS = {
    f"erase bank {ACCOUNTS} 7 --source {J} --reason request-12": {KEPT, OTHER},
    f"drop bank {ACCOUNTS}": None,
    f"drop bank {ACCOUNTS} --undo": {KEPT, ERASED, OTHER},
    f"rebuild bank {ACCOUNTS}": {KEPT, ERASED, OTHER},
    "replay bank": {KEPT, ERASED, OTHER},
    "maintain bank": {KEPT, ERASED, OTHER},
    "load bank --only silver": {KEPT, ERASED, OTHER},
}
NAMES = ("erase", "drop", "undo", "rebuild", "replay", "maintain", "load")


@pytest.fixture(scope="module")
def loaded_lake(spark, tmp_path_factory):
    """Return a lake that has rows wherever an erasure looks for them."""
    made = erasing.make(spark, tmp_path_factory.mktemp("killed") / "lake")
    rebuild.rebuild(spark, made.file, "bank", ACCOUNTS)
    keep_in_quarantine(made, '{"id":7}', f'{{"after":{{"name":"{NAME}"}}}}')
    add_tombstone(made.feeds[0])
    made.load()
    return made


@pytest.fixture
def lake(loaded_lake, tmp_path):
    return loaded_lake.copy_to(tmp_path / "lake")


def begin(lake, command):
    """Do what comes ahead of a command."""
    if "--undo" in command:
        drop.drop(lake.spark, lake.file, "bank", ACCOUNTS)
    change(lake, 100)


def change(lake, number):
    """Bring a row to bronze, and return it."""
    feed = lake.feeds[0]
    feed.commit(feed.insert(id=number, name="new", balance="1"))
    lake.to_bronze()
    return J, number, "new"


def shown(lake):
    """Return the published rows, None where the table is dropped, as another process reads them."""
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    published._read.clear()
    is_there = ACCOUNTS in published.latest(lake.spark, lake.file, "bank").tables
    return set(lake.rows("id", "name")) if is_there else None


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_a_command_that_is_killed_behind_each_of_its_commits_is_ended_by_the_next_one(lake, command):
    begin(lake, command)
    rows, kills, came = COMMANDS[command], 0, {(J, 100, "new")}
    while True:
        # when each run is killed one commit later than the one before
        before, wanted = count_commits(lake.file), kills + 1
        if not killed_when(lake.file, command, lambda: count_commits(lake.file) - before >= wanted):  # noqa: B023 - it is used at once.
            break
        kills += 1
        # then readers have whole publications
        now = shown(lake)
        assert now is None or {KEPT, OTHER} <= now <= {KEPT, OTHER, ERASED} | came
        # and loads go on
        came.add(change(lake, 100 + kills))
        assert lake.load().problems == {}
        if shown(lake) is not None:
            assert came <= shown(lake)
    assert kills > 0
    assert lake.load().problems == {}
    assert shown(lake) == (None if rows is None else rows | came)
    if "erase" in command:
        assert history_of(lake, f"name IN ('{NAME}', '{FORMER}')") == 0
        assert set(erasing.run(lake, "7").counts.values()) == {0}


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_two_processes_that_do_the_same_at_once_do_it_once(lake, command):
    begin(lake, command)
    both = [start(lake.file, command) for _ in range(2)]
    output = [process.communicate(timeout=1200)[0] for process in both]
    # then one of them may have to be run again, and says so
    codes = sorted(process.returncode for process in both)
    assert codes in ([0, 0], [0, Retryable.exit_code]), output
    shown(lake)
    assert lake.load().problems == {}
    rows = COMMANDS[command]
    assert shown(lake) == (None if rows is None else rows | {(J, 100, "new")})
    if "erase" in command:
        assert history_of(lake, f"name IN ('{NAME}', '{FORMER}')") == 0
        assert set(erasing.run(lake, "7").counts.values()) == {0}
