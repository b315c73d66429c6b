"""The checkpoint: whole, durable, never backward, and one edge to a folder."""

import errno
import json
import multiprocessing

import msgspec
import pytest

from edge.postgres.checkpoint import Commits, LastCommit, PostgresCheckpoint, format_lsn, parse_lsn
from edge.progress.checkpoint import State
from headrace.errors import CorruptInput, NeedsOperator, NoSpace
from headrace.position import Position

LSN = 0x16_B374D848


def checkpoint(acknowledged=None, lsn=LSN, **changes):
    return msgspec.structs.replace(
        PostgresCheckpoint(
            source="jakarta/bank",
            stage="made",
            acknowledged=str(acknowledged or Position(7, LSN - 100, 3)),
            confirmed_lsn=format_lsn(lsn),
            system_identifier="7000",
            timeline=1,
            database="bank",
            slot="headrace",
            publication="headrace",
            publication_oid=16400,
        ),
        **changes,
    )


@pytest.fixture
def state(tmp_path):
    return State(tmp_path, PostgresCheckpoint)


def test_what_was_written_is_read_again(state):
    state.write(checkpoint())

    assert state.read("jakarta/bank") == checkpoint()
    assert [path.name for path in state.folder.iterdir()] == ["checkpoint.json"]


def test_next_batch_follows_what_the_spool_has():
    spooled = Position(7, LSN - 50, 0)

    result = checkpoint(spooled=str(spooled))

    assert result.promised == spooled
    assert result.tail == spooled
    assert checkpoint(spooled=str(Position(7, LSN, 4))).tail == Position(7, LSN - 1, 0xFFFFFFFF)


def test_file_of_before_there_was_a_spool_is_read(state):
    state.write(checkpoint())
    known = json.loads(state.path.read_text())
    del known["spooled"], known["guarded"]
    state.path.write_text(json.dumps(known))

    assert state.read("jakarta/bank") == checkpoint()


def test_full_disk_is_no_operators_matter(state, monkeypatch):
    def full(_descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(NoSpace, match="No space left on device"):
        state.write(checkpoint())


def test_no_file_is_no_checkpoint(state):
    assert state.read("jakarta/bank") is None


def test_checkpoint_never_moves_backward():
    moved = Commits().advanced(checkpoint(), Position(7, 1, 0), 1)

    assert moved == checkpoint(last_commit=LastCommit(format_lsn(LSN), 0))
    assert Commits().advanced(checkpoint(), Position(7, LSN, 9), LSN + 1).confirmed == LSN + 1


def test_the_last_commit_below_the_confirmed_place_is_kept_even_where_a_write_failed():
    commits, first = Commits(), checkpoint()
    commits.read += [(LSN + 10, 5), (LSN + 20, 6), (LSN + 30, 7)]

    moved = commits.advanced(first, first.position, LSN + 25)
    again = commits.advanced(first, first.position, LSN + 25)
    idle = commits.advanced(again, first.position, LSN + 29)

    assert moved == again
    assert moved.last_commit == idle.last_commit == LastCommit(format_lsn(LSN + 20), 6)
    assert commits.advanced(idle, first.position, LSN + 30).last_commit == LastCommit(format_lsn(LSN + 30), 7)
    commits.restart()
    assert commits.advanced(idle, first.position, LSN + 90).last_commit == idle.last_commit


def test_a_log_that_was_followed_to_another_timeline_is_confirmed_from_where_it_was_left():
    commits, first = Commits(), checkpoint()
    commits.read += [(LSN + 10, 5), (LSN + 30, 7)]
    commits.advanced(first, first.position, LSN + 40)
    left = LastCommit(format_lsn(LSN + 20), 0)
    other = checkpoint(lsn=LSN + 20, timeline=2, last_commit=left)

    moved = commits.advanced(other, first.position, LSN + 20)

    assert (moved.confirmed, moved.last_commit) == (LSN + 20, left)


def test_commits_that_were_too_many_to_be_kept_claim_nothing():
    commits, first = Commits(), checkpoint()
    commits.read += [(LSN + number, number) for number in range(1, 30_001)]

    moved = commits.advanced(first, first.position, LSN + 15_000)

    assert moved.last_commit == LastCommit(format_lsn(LSN + 15_000), 0)
    assert commits.advanced(moved, first.position, LSN + 29_000).last_commit == LastCommit(
        format_lsn(LSN + 29_000), 29_000
    )


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"\xff\xfe", b'{"version":1}', b"[]", msgspec.json.encode(checkpoint())[:-20]],
    ids=["empty", "cut", "null", "no text", "fields missing", "list", "truncated"],
)
def test_damaged_file_calls_an_operator(state, content):
    state.path.write_bytes(content)

    with pytest.raises(NeedsOperator, match="damaged") as raised:
        state.read("jakarta/bank")
    assert "--adopt" in raised.value.hint


@pytest.mark.parametrize(("field", "value"), [("acknowledged", "somewhere"), ("confirmed_lsn", "16-B3")])
def test_positions_that_are_none_are_damage(state, field, value):
    state.path.write_text(json.dumps(json.loads(msgspec.json.encode(checkpoint())) | {field: value}))

    with pytest.raises(NeedsOperator, match="damaged"):
        state.read("jakarta/bank")


def test_checkpoint_of_another_source_calls_an_operator(state):
    state.write(checkpoint())

    with pytest.raises(NeedsOperator, match=r"of source 'jakarta/bank', not of 'london/bank'"):
        state.read("london/bank")


def test_checkpoint_of_another_version_calls_an_operator(state):
    state.write(checkpoint(version=2))

    with pytest.raises(NeedsOperator, match="version 2"):
        state.read("jakarta/bank")


def test_folder_that_cannot_be_used_calls_an_operator(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(NeedsOperator, match="cannot be used"), State(tmp_path / "file", PostgresCheckpoint).locked():
        pass


def _try_to_lock(folder, answer):
    try:
        with State(folder, PostgresCheckpoint).locked():
            answer.put("locked")
    except NeedsOperator as error:
        answer.put(error.message)


def test_one_edge_at_a_time_has_the_folder(state):
    context = multiprocessing.get_context("spawn")
    answer = context.Queue()
    with state.locked():
        other = context.Process(target=_try_to_lock, args=(state.folder, answer))
        other.start()
        assert "in use by another edge" in answer.get(timeout=20)
        other.join()
    with state.locked():
        pass


def test_next_batch_follows_what_is_acknowledged_when_all_before_the_confirmed_place_is():
    assert checkpoint().tail == Position(7, LSN - 100, 3)
    assert checkpoint(Position.start(7)).tail == Position.start(7)


def test_next_batch_follows_the_place_before_what_is_read_again_when_a_part_of_that_is_acknowledged():
    begun = checkpoint(Position(7, LSN, 40))

    assert Position(7, LSN - 1, 2**32 - 2) < begun.tail < Position(7, LSN, 0)
    assert begun.tail == Position.parse(str(begun.tail))


@pytest.mark.parametrize("lsn", [0, 1, 0xFFFFFFFF, 1 << 32, LSN, (1 << 64) - 1])
def test_lsn_text_is_read_as_the_same_number(lsn):
    assert parse_lsn(format_lsn(lsn)) == lsn


@pytest.mark.parametrize("text", ["", "0", "1/", "/1", "1/2/3", "g/1", "123456789/0", "0/1 "])
def test_text_that_is_no_lsn_is_refused(text):
    with pytest.raises(CorruptInput):
        parse_lsn(text)
