"""S18: an erasure is ended by the next one wherever it was killed, and holds beside others and on a bronze of before it."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial, partialmethod
from pathlib import Path

import pytest
from delta.tables import DeltaMergeBuilder
from pyspark.sql import DataFrameWriter

from spark_jobs.bronze import erased_records
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain, replay
from spark_jobs.silver import rebuild
from spark_jobs.state import delta_log
from tests.lake import erasing
from tests.lake.erasing import (
    ACCOUNTS,
    FORMER,
    NAME,
    J,
    KilledError,
    L,
    add_tombstone,
    history_of,
    keep_in_quarantine,
    run,
)

pytestmark = pytest.mark.timeout(1500)


@pytest.fixture(scope="module")
def loaded_lake(spark, tmp_path_factory):
    return erasing.make(spark, tmp_path_factory.mktemp("erase") / "lake")


@pytest.fixture
def lake(loaded_lake, tmp_path):
    return loaded_lake.copy_to(tmp_path / "lake")


@pytest.mark.long
def test_s18_an_erasure_that_is_killed_at_each_of_its_commits_is_ended_by_the_next_one(lake, monkeypatch):
    """Killed behind the first commit in bronze, it left the keys of tombstones for good."""
    # given former rows, a quarantined record, a tombstone
    former = rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS).former
    keep_in_quarantine(lake, '{"id":7}', f'{{"after":{{"name":"{NAME}"}}}}')
    add_tombstone(lake.feeds[0])
    lake.to_bronze()
    # when each run ends one commit later than the one before
    commits, done = [], False
    while not done:
        commits.append(0)

        def counted(*given, _commit, **options):
            result = _commit(*given, **options)
            commits[-1] += 1
            if commits[-1] == len(commits):
                raise KilledError
            return result

        with monkeypatch.context() as patch:
            for kind, name in ((DeltaMergeBuilder, "execute"), (DataFrameWriter, "save")):
                patch.setattr(kind, name, partialmethod(counted, _commit=getattr(kind, name)))
            patch.setattr(erased_records, "purge", partial(counted, _commit=erased_records.purge))
            try:
                run(lake, "7")
                done = True
            except KilledError:
                pass
    # then nothing of it is left, and the others are
    assert len(commits) > 10
    assert set(run(lake, "7").counts.values()) == {0}
    raw = lake.spark.read.format("delta").load(bronze.table_path(lake.file, "bank"))
    assert raw.filter(f"source = '{J}' AND key LIKE '%7%' OR value IS NULL AND key IS NOT NULL").count() == 0
    assert lake.rows("id", "name") == [(J, 1, "kept"), (L, 7, "another person")]
    assert lake.spark.read.format("delta").load(former).count() == 2
    one = lake.feeds[0]
    one.commit(one.insert(id=2, name="new", balance="1"))
    assert lake.load().problems == {}
    assert history_of(lake, f"name IN ('{NAME}', '{FORMER}')") == 0


@pytest.mark.long
def test_s18_two_that_erase_the_same_at_once_both_end_and_ten_thousand_keys_are_erased_at_once(lake):
    one, _ = lake.feeds
    one.commit(*(one.insert(id=number, name=f"{NAME}-{number}", balance="1") for number in range(100, 10_100)))
    assert lake.load().problems == {}
    keys = [str(number) for number in range(100, 10_099)]
    # when
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(run, lake, "7", *keys) for _ in range(2)]
        counts = [each.result().counts for each in both]
    # then each row was erased, by one of them or both
    assert max(count["silver"] for count in counts) == 10_000
    assert lake.rows("id") == [(J, 1), (J, 10_099), (L, 7)]
    assert history_of(lake, f"_source = '{J}'") == 2
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id") == [(J, 1), (J, 10_099), (L, 7)]
    # and loads go on
    one.commit(one.update(id=100, name="came back", balance="5"), one.insert(id=2, name="new", balance="1"))
    assert lake.load().problems == {}
    assert lake.rows("id", "name") == [
        (J, 1, "kept"),
        (J, 100, "came back"),
        (J, 10_099, f"{NAME}-10099"),
        (J, 2, "new"),
        (L, 7, "another person"),
    ]


@pytest.mark.long
def test_s18_a_key_that_is_erased_while_its_row_changes_has_that_change_alone(lake, monkeypatch):
    one, empty = lake.feeds[0], erased_records.empty

    def late(*given):
        # what bronze has of the key is known, nothing is erased yet
        one.commit(one.update(id=7, name="since then", balance="6"))
        lake.to_bronze()
        monkeypatch.setattr(erased_records, "empty", empty)
        return empty(*given)

    monkeypatch.setattr(erased_records, "empty", late)
    run(lake, "7")
    assert lake.rows("id", "name") == [(J, 1, "kept"), (L, 7, "another person")]
    # the source has sent the row again
    assert lake.load().problems == {}
    changed = [(J, 1, "kept"), (J, 7, "since then"), (L, 7, "another person")]
    assert lake.rows("id", "name") == changed
    assert history_of(lake, f"name IN ('{NAME}', '{FORMER}')") == 0
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id", "name") == changed


_AFTERWARDS = ("erase", "load", "rebuild", "maintain", "replay")


@pytest.mark.long
@pytest.mark.parametrize("then", _AFTERWARDS)
def test_s18_bronze_that_is_restored_from_a_copy_of_before_an_erasure_has_nothing_of_the_row(lake, then, tmp_path):
    """The row was in bronze again, and each replay and rebuild brought it back."""
    path, backup = Path(bronze.table_path(lake.file, "bank")), tmp_path / "backup"
    add_tombstone(lake.feeds[0])
    lake.load()
    shutil.copytree(path, backup)
    run(lake, "7")
    # when
    shutil.rmtree(path)
    shutil.copytree(backup, path)
    lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    if then == "load":
        one = lake.feeds[0]
        one.commit(one.update(id=1, name="kept", balance="9"))
        assert lake.load().problems == {}
    elif then == "erase":
        # what it notes of bronze is not taken for what the erasure before it noted
        run(lake, "1234567")
    elif then == "replay":
        assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    elif then == "rebuild":
        rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
    else:
        maintain.maintain(lake.spark, lake.file, "bank")
    # then
    raw = lake.spark.read.format("delta").load(str(path))
    assert raw.filter(f"source = '{J}' AND key LIKE '%7%' OR value IS NULL AND key IS NOT NULL").count() == 0
    assert lake.rows("id", "name") == [(J, 1, "kept"), (L, 7, "another person")]
    # and that is known from then on
    version = delta_log.version(lake.spark, str(path))
    erased_records.empty_again(lake.spark, lake.file, "bank")
    assert delta_log.version(lake.spark, str(path)) == version
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id", "name") == [(J, 1, "kept"), (L, 7, "another person")]
