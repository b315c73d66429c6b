"""The spool: durable, in order, within its limit; and what it says when it is not what the checkpoint relies on."""

import dataclasses
import random
import resource
import sqlite3
import subprocess
import sys
import textwrap

import pytest

from edge.progress.spool import Spool
from headrace.errors import NeedsOperator, NoSpace
from tests.unit.edge.delivery.test_window import START, batch, position

SOURCE = "jakarta/bank"
MEGABYTE = 1 << 20
noise = random.Random(1)


def full(number, size=50_000, **options):
    """Return a batch whose body does not shrink."""
    return dataclasses.replace(batch(number, **options), body=noise.randbytes(size))


@pytest.fixture
def spools(tmp_path):
    """Return what opens the spool of one folder, again and again as after crashes: nothing is closed in between."""
    made = []

    def make(acknowledged=START, promised=None, *, confirmed=1000, megabytes=4):
        for former in made:
            # The kernel drops a dead process's lock; nothing else of it is let go.
            former.close()
        made.append(Spool(tmp_path, SOURCE, megabytes * MEGABYTE))
        made[-1].open(acknowledged, promised, confirmed)
        return made[-1]

    yield make
    for each in made:
        each.close()


def fill(spool, *numbers, **options):
    batches = [full(number, **options) for number in numbers]
    spool.append([(each, each.confirm, 1000.0) for each in batches])
    return batches


def fill_up(spool):
    while True:
        fill(spool, len(spool) + 1)


def numbers(spool, row=0):
    return [kept.batch.last.commit for kept in spool.read(row or spool.first_row, 100 * MEGABYTE, START)]


def test_a_spool_whose_first_batch_did_not_fit_is_rewound(spools):
    """G12: the file is there and has no row: the next session ended with a TypeError."""
    spool = spools(megabytes=1)
    with pytest.raises(NoSpace):
        fill(spool, 1, size=2 * MEGABYTE)
    spool.rewind(1)
    assert (len(spool), spool.end) == (0, None)
    fill(spool, 1)
    assert numbers(spool) == [1]


def test_batches_come_back_as_they_were_in_order(spools):
    batches = fill(spools(), 1, 2) + fill(spools(), 3)

    again = spools(promised=position(3))

    assert [kept.batch for kept in again.read(1, 100 * MEGABYTE, START)] == batches
    assert (len(again), again.bytes, again.end) == (3, 150_000, position(3))


def test_file_is_private(spools, tmp_path):
    fill(spools(), 1)

    assert {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {
        "spool.sqlite": 0o600,
        "spool.sqlite-wal": 0o600,
        "reserve": 0o600,
    }


def test_reading_takes_about_what_it_may_and_at_least_one(spools):
    spool = spools()
    fill(spool, 1, 2, 3)

    assert [kept.row for kept in spool.read(1, 1, START)] == [1]
    assert [kept.row for kept in spool.read(1, 60_000, START)] == [1, 2]
    assert spool.read(4, 1, START) == []


def test_what_the_checkpoint_has_is_deleted_and_the_file_goes_with_the_last(spools, tmp_path):
    spool = spools()
    fill(spool, 1, 2, 3)

    spool.forget(position(2))
    assert numbers(spool) == [3]
    assert spool.bytes == 50_000
    spool.forget(position(3))

    assert list(tmp_path.iterdir()) == []
    assert len(spool) == spool.bytes == 0
    fill(spool, 4)
    assert numbers(spool) == [4]


def test_batches_that_end_within_a_transaction_alone_are_read_again(spools):
    spool = spools()
    fill(spool, 1, confirm=2)
    fill(spool, 2, confirm=3)
    fill(spool, 3, 4, confirm=0)

    spool.rewind(3)

    assert numbers(spool) == [1, 2]
    fill(spool, 3)
    assert numbers(spools()) == [1, 2, 3]


def test_what_was_spooled_after_the_checkpoint_was_written_is_read_again(spools):
    fill(spools(), 1, 2, 3)

    spool = spools(promised=position(2), confirmed=3)

    assert numbers(spool) == [1, 2]
    fill(spool, 3)
    assert numbers(spools()) == [1, 2, 3]


def test_spool_with_nothing_but_the_beginning_of_a_transaction_is_emptied_by_going_back(spools, tmp_path):
    spool = spools()
    fill(spool, 1, 2, confirm=0)

    spool.rewind(1)

    assert len(spool) == 0
    assert list(tmp_path.iterdir()) == []


def test_full_spool_keeps_what_it_has_and_takes_more_when_some_has_gone(spools):
    spool = spools(megabytes=1)
    with pytest.raises(NoSpace, match=r"the spool is full: no more fits into its 1\.0 MB"):
        fill_up(spool)
    count = len(spool)
    assert 12 <= count <= 20
    assert numbers(spool) == list(range(1, count + 1))

    spool.forget(position(count // 2))
    fill(spool, count + 1)

    assert numbers(spools(position(count // 2)))[-1] == count + 1
    assert spool.path.stat().st_size <= MEGABYTE


def test_batches_that_do_not_all_fit_are_not_kept_in_part(spools):
    spool = spools(megabytes=1)
    with pytest.raises(NoSpace):
        fill(spool, *range(1, 100))

    assert len(spool) == 0
    fill(spool, 1)
    assert numbers(spools()) == [1]


def test_full_disk_is_told_from_a_full_spool_and_nothing_is_lost(tmp_path):
    # A limit on the size of files is a disk that is full, for one process.
    script = f"""
        import resource, sys
        from pathlib import Path
        from tests.unit.edge.progress.test_spool import *
        resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, {resource.RLIM_INFINITY}))
        spool = Spool(Path({str(tmp_path)!r}), SOURCE, 100 * MEGABYTE)
        spool.open(START, None, 1)
        try:
            fill_up(spool)
        except NoSpace as error:
            print(error.message)
        count = len(spool)
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        fill(spool, count + 1)
        print(numbers(spool) == list(range(1, count + 2)), count > 3)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=True, timeout=60
    )

    refusal, outcome = done.stdout.splitlines()
    assert refusal.startswith(f"the disk of {tmp_path} takes no more")
    assert outcome == "True True"


def test_lost_spool_names_the_range_that_it_alone_had(spools, tmp_path):
    with pytest.raises(NeedsOperator, match=f"is gone.*after {position(2)} up to {position(5)}") as raised:
        spools(position(2), position(5))

    assert "init --adopt --new-epoch" in raised.value.hint


def test_old_copy_of_the_spool_that_ends_too_early_is_refused(spools):
    fill(spools(), 1, 2, 3)

    with pytest.raises(NeedsOperator, match=f"ends at {position(3)}.*up to {position(5)}"):
        spools(START, position(5))


def test_spool_that_begins_too_late_is_refused(spools):
    fill(spools(), 3, 4)

    with pytest.raises(NeedsOperator, match=r"is damaged .*nothing follows"):
        spools(position(1), position(4))


@pytest.mark.parametrize("place", [0, 50, 5_000, 30_000, 80_000, 120_000])
def test_damage_anywhere_is_found_before_anything_is_sent(spools, place):
    spool = spools()
    fill(spool, 1, 2, 3)
    spool.close()
    data = bytearray(spool.path.read_bytes())
    # Every page from there on has other bytes in it.
    for index in range(place, len(data), 4096):
        data[index] ^= 0x55
    spool.path.write_bytes(data)

    with pytest.raises(NeedsOperator, match=f"is damaged.*after {START} up to {position(3)}"):
        spools(START, position(3))


@pytest.mark.parametrize("row", [1, 3])
@pytest.mark.parametrize("column", ["head", "body", "first", "last", "confirm"])
def test_a_spool_with_a_value_of_another_type_calls_an_operator(spools, column, row):
    """Found by fuzzing: columns of SQLite's take any type, and the edge ended with a TypeError, some only when rows went."""
    spool = spools()
    fill(spool, 1, 2, 3)
    spool.close()
    value = 7 if column in {"head", "body"} else b"x"
    connection = sqlite3.connect(spool.path)
    connection.execute(f"update batch set {column} = ? where id = ?", (value, row))
    connection.commit()
    connection.close()

    with pytest.raises(NeedsOperator, match=r"is damaged|ends at"):
        spools(promised=position(3))


def test_damaged_spool_on_which_nothing_depends_is_removed(spools):
    spool = spools()
    fill(spool, 1, 2)
    spool.close()
    spool.path.write_bytes(b"not a database" * 1000)

    spool = spools()

    assert len(spool) == 0
    fill(spool, 1)
    assert numbers(spool) == [1]


def test_file_that_was_made_and_not_filled_is_no_damage(spools, tmp_path):
    sqlite3.connect(tmp_path / "spool.sqlite").close()
    (tmp_path / "spool.sqlite").touch()

    spool = spools()
    fill(spool, 1)

    assert numbers(spool) == [1]


def test_spool_of_another_source_is_refused(spools, tmp_path):
    fill(spools(), 1)
    stranger = Spool(tmp_path, "london/bank", MEGABYTE)

    spools().close()
    with pytest.raises(NeedsOperator, match="is of source 'jakarta/bank', not of 'london/bank'"):
        stranger.open(START, None, 1)
    stranger.close()
