"""Whatever is not a message raises CorruptInput with its place in the log, and leaves the batcher as it was."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptInput
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    COMMIT,
    END,
    EPOCH,
    INT8,
    NOW_MS,
    OID,
    UNCHANGED,
    Column,
    Log,
    begin,
    commit,
    delete,
    insert,
    logical_message,
    origin,
    relation,
    truncate,
    type_name,
    update,
)

COLUMNS = [Column("id", INT8, key=True), Column("flag", 16), Column("at", 1184), Column("data", 17), Column("note")]
ROW = (1, "t", "2026-01-31 09:15:00+00", "\\x00ff", "Größe")
SPECIAL = (2, None, "infinity", None, UNCHANGED)
KEY = (3, None, None, None, None)
IN_TRANSACTION = {
    "commit": commit(),
    "relation": relation(*COLUMNS),
    "altered": relation(*COLUMNS, Column("added")),
    "type": type_name(50001, "mood"),
    "insert": insert(*ROW),
    "insert with nulls": insert(1, None, None, None, None),
    "insert with escapes": insert(*ROW[:-1], 'a "b"'),
    "update": update(ROW),
    "update with unchanged": update(SPECIAL),
    "update of the key": update(ROW, key=KEY),
    "update with the old row": update(ROW, old=ROW),
    "update with the old row, unchanged": update(SPECIAL, old=ROW),
    "delete": delete(key=KEY),
    "delete with the old row": delete(old=ROW),
    "truncate": truncate(OID, OID),
    "logical message": logical_message(),
}


def a_log(*, reported=True, **options):
    """A log in the middle of a transaction."""
    log = Log(**{"messages": ["*"], **options})
    log.feed(begin(), relation(*COLUMNS))
    if reported:
        log.feed(insert(*ROW), insert(*ROW))
    return log


def state(log):
    batcher = log.batcher
    return list(batcher.keys), list(batcher.values), batcher.open_bytes, log.decoder.in_transaction, log.decoder.end_lsn


def assert_refused(log, message):
    before = state(log)
    with pytest.raises(CorruptInput) as error:
        log.decoder.feed(message, NOW_MS)
    assert state(log) == before
    return error.value


@pytest.mark.parametrize("reported", [True, False], ids=["later change", "first change"])
@pytest.mark.parametrize("name", IN_TRANSACTION)
def test_a_message_cut_at_any_length_is_refused(name, reported):
    message = IN_TRANSACTION[name]
    log = a_log(reported=reported)
    for length in range(1, len(message)):
        error = assert_refused(log, message[:length])
        assert str(Position(EPOCH, COMMIT, 2 if reported else 0)) in error.message
    # then the whole message is still welcome
    log.decoder.feed(message, NOW_MS)


@pytest.mark.parametrize("name", IN_TRANSACTION)
def test_a_message_with_more_behind_it_is_refused(name):
    for more in (b"\0", b"n", b"\0\0\0\0"):
        assert_refused(a_log(), IN_TRANSACTION[name] + more)


def test_a_begin_cut_at_any_length_is_refused():
    log = Log()
    for length in range(len(begin())):
        error = assert_refused(log, begin()[:length])
        assert "after position None" in error.message
    log.transaction(relation(*COLUMNS), insert(*ROW))
    assert str(Position(EPOCH, COMMIT, 0)) in assert_refused(log, begin()[:9]).message


@given(st.sampled_from(b"BCRYIUDTOM").map(lambda kind: bytes([kind])) | st.just(b""), st.binary(max_size=200))
def test_random_bytes_are_refused_or_decoded(kind, rest):
    log = a_log()
    try:
        log.decoder.feed(kind + rest, NOW_MS)
    except CorruptInput:
        assert len(log.batcher.values) == len(log.batcher.keys) == 3


@given(st.sampled_from(sorted(IN_TRANSACTION)), st.data())
def test_a_damaged_byte_is_refused_or_decoded(name, data):
    log = a_log()
    message = bytearray(IN_TRANSACTION[name])
    message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    before = state(log)
    try:
        log.decoder.feed(bytes(message), NOW_MS)
    except CorruptInput:
        assert state(log) == before


# B6 and B12: messages of a protocol that was not asked for are neither guessed at nor waited for.
def test_a_type_of_message_that_is_unknown_is_named():
    error = assert_refused(a_log(), b"S" + struct.pack(">IB", 1, 1))
    assert "b'S'" in error.message
    assert str(Position(EPOCH, COMMIT, 2)) in error.message
    assert error.hint


@pytest.mark.parametrize(
    "message",
    [commit(COMMIT + 1), begin(), insert(*ROW, oid=7), insert(*ROW[:-1]), insert(*ROW, "more"), truncate(7)],
    ids=["another's commit", "second begin", "unknown relation", "too few", "too many", "truncate of the unknown"],
)
def test_a_message_that_does_not_fit_what_came_before_is_refused(message):
    assert_refused(a_log(), message)


@pytest.mark.parametrize(
    "message", [commit(), insert(*ROW), update(ROW), delete(key=KEY), truncate(OID)], ids=["C", "I", "U", "D", "T"]
)
def test_what_belongs_into_a_transaction_is_refused_outside(message):
    log = a_log()
    log.feed(commit())
    assert_refused(log, message)


def test_a_truncate_of_known_and_unknown_tables_leaves_nothing():
    assert_refused(a_log(reported=False), truncate(OID, 7))


@pytest.mark.parametrize(
    "build",
    [insert, lambda *row: update(row), lambda *row: update(row, old=ROW), lambda *row: update(ROW, old=row)],
    ids=["insert", "update", "update of a whole row", "old row"],
)
def test_text_that_is_none_is_refused_without_its_value(build):
    error = assert_refused(a_log(), build(*ROW[:-1], b"secret \xff\xfe"))
    assert "secret" not in error.message + error.hint


def test_a_key_that_is_nowhere_is_refused():
    assert_refused(a_log(), update((UNCHANGED, *ROW[1:])))


def test_origins_are_not_looked_at():
    log = a_log()
    before = state(log)
    for length in range(1, len(origin()) + 1):
        log.decoder.feed(origin()[:length], NOW_MS)
    assert state(log) == before


def test_after_a_refused_message_the_log_goes_on_as_if_it_had_not_been():
    # given
    expected = a_log()
    log = a_log()
    # when
    assert_refused(log, insert(*ROW[:-1], b"\xff"))
    # then
    for each in (expected, log):
        each.feed(update(ROW), commit(COMMIT, END))
    assert log.records() == expected.records()
