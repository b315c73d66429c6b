"""Changes whose record would be too large: the edge stops there, or a dead letter takes the place; nothing is passed over."""

import hashlib
import json
import tracemalloc

import pytest

from edge.postgres import pgoutput, values
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    COMMIT,
    EPOCH,
    INT8,
    UNCHANGED,
    Column,
    Log,
    begin,
    delete,
    insert,
    relation,
    update,
)

TABLE = relation(Column("id", INT8, key=True), Column("note"), Column("n", INT8))
FULL = relation(*(Column(name, oid, key=True) for name, oid in (("id", INT8), ("note", 25), ("n", INT8))), identity="f")
HUGE = "x" * (1 << 20)


def a_log(**records):
    return Log(key_of=lambda _: ["id"], largest_megabytes=1, **records)


@pytest.mark.parametrize("earlier", [[], [insert(1, "a", 1), insert(2, "a", 1)]], ids=["first", "later"])
def test_the_edge_stops_at_it_and_names_table_position_and_size(earlier):
    log = a_log(on_too_large="stop")
    log.feed(begin(), TABLE, *earlier)
    with pytest.raises(NeedsOperator) as stopped:
        log.feed(insert(7, HUGE, 1))
    assert "public.accounts" in stopped.value.message
    assert str(Position(EPOCH, COMMIT, len(earlier))) in stopped.value.message
    assert "x" * 20 not in stopped.value.message + stopped.value.hint


@pytest.mark.parametrize("earlier", [[], [insert(1, "a", 1), insert(2, "a", 1)]], ids=["first", "later"])
def test_a_dead_letter_takes_its_place_with_key_size_and_hash(earlier):
    log = a_log(on_too_large="dead-letter")
    log.transaction(TABLE, *earlier, insert(7, HUGE, 1), insert(8, "b", 1))
    letter, after = log.changes()[-2:]
    assert letter.key == {"id": 7}
    assert letter.position.ordinal == len(earlier)
    assert (letter.value["op"], letter.value["before"], letter.value["after"]) == ("c", None, {"id": 7})
    assert letter.value["unchanged"] == ["note", "n"]
    row = json.dumps({"id": 7, "note": HUGE, "n": 1}, separators=(",", ":")).encode()
    assert letter.value["too_large"]["sha256"] == hashlib.sha256(row).hexdigest()
    assert letter.value["too_large"]["bytes"] > len(row)
    assert (after.position.ordinal, after.value["after"]["id"]) == (len(earlier) + 1, 8)
    assert after.value["transaction"]["last"] is True


def test_of_an_update_the_old_key_stays_and_of_a_delete_the_key():
    log = a_log(on_too_large="dead-letter")
    log.transaction(FULL, update((2, HUGE, 5), old=(1, "a", 4)), delete(old=(2, HUGE, 5)))
    updated, deleted = log.changes()
    assert (updated.key, updated.value["before"], updated.value["after"]) == ({"id": 2}, {"id": 1}, {"id": 2})
    assert (deleted.key, deleted.value["before"], deleted.value["after"]) == ({"id": 2}, {"id": 2}, None)
    assert "unchanged" not in deleted.value
    assert updated.value["too_large"]["sha256"] == deleted.value["too_large"]["sha256"]


def test_an_update_by_key_is_as_short():
    log = a_log(on_too_large="dead-letter")
    log.transaction(TABLE, update((2, HUGE, 5), key=(1, None, None)), update((2, HUGE, 5)))
    moved, changed = log.changes()
    assert (moved.value["before"], moved.value["after"]) == ({"id": 1}, {"id": 2})
    assert (changed.value["before"], changed.value["after"]) == (None, {"id": 2})


def test_one_as_large_as_the_limit_passes():
    log = a_log()
    log.transaction(TABLE, insert(7, HUGE[:-1000], 1))
    assert "too_large" not in log.changes()[0].value


def test_a_table_without_a_key_has_a_dead_letter_without_one():
    log = Log(largest_megabytes=1, on_too_large="dead-letter")
    log.transaction(relation(Column("note"), identity="n"), insert(HUGE))
    (letter,) = log.changes()
    assert (letter.key, letter.value["after"], letter.value["unchanged"]) == (None, {}, ["note"])


_LARGE = "\u00e9\n" * (1 << 20)
_BINARY = "\\x" + "0aff" * (1 << 19)
_WITH_BYTES = (Column("id", INT8, key=True), Column("doc", 17), Column("note"), Column("n", INT8))


@pytest.mark.parametrize("identity", ["d", "f"])
@pytest.mark.parametrize("doc", [_BINARY, UNCHANGED, None], ids=["bytea", "unchanged", "null"])
def test_a_change_that_is_not_decoded_has_the_same_dead_letter(monkeypatch, identity, doc):
    """G7: decoding a value of 64 MB took 731 MB, before its size was looked at."""
    columns = [column._replace(key=column.key or identity == "f") for column in _WITH_BYTES]
    old = {"old": (2, "\\x00" * 1, _LARGE, 5)} if identity == "f" else {"key": (2, None, None, None)}
    messages = [
        relation(*columns, identity=identity),
        insert(1, _BINARY, _LARGE, None),
        update((2, doc, _LARGE, 5), **old),
        *([delete(old=(3, _BINARY, _LARGE, 5))] if identity == "f" else []),
        insert(4, "\\x00", "a", 1),
    ]
    letters = []
    for undecoded in (True, False):
        if not undecoded:
            monkeypatch.setattr(pgoutput, "find_large", lambda *_: None)
        log = a_log(on_too_large="dead-letter")
        log.transaction(*messages)
        letters.append([(change.key, change.position, change.value) for change in log.changes()])
    assert letters[0] == letters[1]
    assert sum("too_large" in value for _, _, value in letters[0]) == len(messages) - 2


def test_a_change_that_would_be_too_large_stops_the_edge_before_it_is_decoded(monkeypatch):
    """G7: the edge was killed for want of memory at the same row, again and again."""
    log = a_log(on_too_large="stop")
    log.feed(begin(), relation(*_WITH_BYTES))
    with monkeypatch.context() as patch:
        patch.setattr(values, "binary", lambda _: pytest.fail("decoded"))
        with pytest.raises(NeedsOperator, match="makes a record of"):
            log.feed(insert(1, _BINARY, _LARGE, None))


def test_decoding_a_large_value_takes_little_more_memory_than_its_message():
    """G7: eleven times the value before."""
    log = a_log(on_too_large="dead-letter")
    log.feed(begin(), relation(*_WITH_BYTES))
    message = insert(1, "\\x" + "00" * (16 << 20), "a", None)
    tracemalloc.start()
    log.feed(message)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert log.batcher.dead_letters == 1
    assert peak < 12 << 20


def test_a_change_of_key_whose_new_row_is_too_large_is_not_decoded_either(monkeypatch):
    """G7: with `key_change = "delete-create"` it was."""
    letters = []
    for undecoded in (True, False):
        if not undecoded:
            monkeypatch.setattr(pgoutput, "find_large", lambda *_: None)
        log = a_log(key_change="delete-create")
        with monkeypatch.context() as patch:
            if undecoded:
                patch.setattr(values, "binary", lambda text: pytest.fail("decoded") if len(text) > 2 else b'""')
            log.transaction(relation(*_WITH_BYTES), update((2, _BINARY, "a", 5), key=(1, None, None, None)))
        letters.append([(change.key, change.position, change.value) for change in log.changes()])

    assert letters[0] == letters[1]
    assert [("too_large" in value, value["op"]) for _, _, value in letters[0]] == [(False, "d"), (True, "c")]


def test_the_edge_goes_on_and_names_table_place_and_column_but_no_value(caplog):
    """G7: it stopped by default, with nothing of the column."""
    a_log().transaction(TABLE, insert(7, HUGE, 1))
    log = a_log()
    log.transaction(relation(*_WITH_BYTES), insert(1, _BINARY, "a", None))

    first, second = [record.message for record in caplog.records]
    assert "public.accounts at position" in first
    assert first.endswith("its largest column is note")
    assert second.endswith("its largest column is doc")
    assert "xxx" not in caplog.text
