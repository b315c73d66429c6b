"""Logical messages, transaction records and tombstones: what they hold, and that positions stay unique, ordered and the same."""

import base64
import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.progress.notes import PREFIX
from headrace.errors import CorruptInput
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    COMMIT,
    COMMIT_MS,
    END,
    EPOCH,
    INT8,
    NOW_MS,
    Column,
    Log,
    begin,
    commit,
    delete,
    insert,
    logical_message,
    opened,
    records,
    relation,
    truncate,
    update,
)

TABLE = relation(Column("id", INT8, key=True), Column("note"))
OTHER = relation(Column("id", INT8, key=True), oid=2, table="orders")


def outlines(log):
    """Of each record its ordinal and what it is."""
    return [(record.position.ordinal, _kind(record)) for record in log.records()]


def _kind(record):
    value = record.value
    if value is None:
        return "tombstone"
    return value.get("op") or value.get("status") or "schema"


class TestMessages:
    def test_a_message_of_a_transaction_has_a_place_among_its_changes(self):
        log = Log(messages=["outbox"])
        log.transaction(TABLE, insert(1, "a"), logical_message(b"\0paid", prefix="outbox"), insert(2, "b"))
        assert outlines(log) == [(0, "schema"), (0, "c"), (1, "m"), (2, "c")]

    def test_a_marker_of_headquarters_is_a_record_whoever_asks(self):
        log = Log()
        log.transaction(logical_message(b"verify", prefix="headrace.marker"))
        assert outlines(log) == [(0, "m")]

    @pytest.mark.parametrize("messages", [["*"], [PREFIX]])
    def test_what_an_edge_reports_of_itself_is_no_message_of_the_database(self, messages):
        """Every role may write messages: it could have reported transactions as passed over that were not."""
        log = Log(messages=messages)
        log.transaction(logical_message(b"{}", prefix=PREFIX), logical_message(b"paid", prefix="headrace.outbox"))
        assert outlines(log) == ([(1, "m")] if messages == ["*"] else [])

    def test_it_is_debeziums_message_with_a_position(self):
        log = Log(messages=["outbox"])
        log.transaction(logical_message(b"\0paid", prefix="outbox"))
        (record,) = log.records()
        assert record.key == {"prefix": "outbox"}
        assert record.value["op"] == "m"
        assert record.value["message"] == {"prefix": "outbox", "content": base64.b64encode(b"\0paid").decode()}
        assert record.value["source"]["position"] == str(Position(EPOCH, COMMIT, 0))
        assert (record.value["source"]["schema"], record.value["source"]["table"]) == ("", "")
        assert record.value["transaction"] == {"id": f"761:{COMMIT}", "total_order": 1, "last": True}

    def test_a_message_outside_of_transactions_stands_right_before_its_end_in_the_log(self):
        log = Log(messages=["*"])
        log.transaction(TABLE, insert(1, "a"))
        # when it ends where the next transaction's commit begins
        log.feed(logical_message(lsn=COMMIT + 100, transactional=False))
        assert not log.decoder.in_transaction
        assert log.decoder.end_lsn == COMMIT + 100
        log.transaction(insert(2, "b"), commit_lsn=COMMIT + 100, end=END + 100)
        result = log.records()
        assert [record.position for record in result[2:]] == [
            Position(EPOCH, COMMIT + 99, 0),
            Position(EPOCH, COMMIT + 100, 0),
        ]
        assert result[2].value["transaction"] is None
        assert (result[2].value["source"]["txId"], result[2].value["source"]["ts_ms"]) == (None, NOW_MS)

    def test_a_message_outside_of_transactions_can_be_confirmed_by_itself(self):
        log = Log(messages=["*"])
        log.feed(logical_message(lsn=COMMIT, transactional=False))
        (sealed,) = log.sealed()
        assert (sealed.confirm, sealed.count, sealed.commit_ms) == (COMMIT, 1, NOW_MS)

    def test_other_prefixes_are_left_out_and_keep_their_place(self):
        kept, left_out = logical_message(prefix="outbox"), logical_message(prefix="noise")
        for wanted, expected in (
            (["outbox"], [(1, "m"), (2, "schema"), (2, "c")]),
            ([], [(2, "schema"), (2, "c")]),
            (["*"], [(0, "m"), (1, "m"), (2, "schema"), (2, "c"), (3, "m")]),
        ):
            log = Log(messages=wanted)
            log.transaction(left_out, kept, TABLE, insert(1, "a"), left_out)
            assert outlines(log) == expected
        log.feed(logical_message(prefix="noise", lsn=COMMIT + 50, transactional=False))

    def test_the_last_change_says_so_whatever_was_left_out_behind_it(self):
        log = Log()
        log.transaction(TABLE, insert(1, "a"), logical_message())
        assert log.changes()[0].value["transaction"]["last"] is True

    def test_a_transaction_of_nothing_wanted_changes_nothing_but_the_end(self):
        log = Log(transactions=True)
        log.transaction(TABLE, insert(1, "a"))
        before = len(log.batcher.values)
        log.transaction(logical_message(), commit_lsn=COMMIT + 100, end=END + 100)
        assert len(log.batcher.values) == before
        assert log.decoder.end_lsn == END + 100

    def test_one_that_is_too_large_is_told_by_size_and_hash(self):
        content = b"x" * (1 << 20)
        log = Log(messages=["*"], largest_megabytes=1)
        log.transaction(logical_message(content))
        (record,) = log.records()
        assert record.value["message"]["content"] is None
        assert record.value["too_large"] == {"bytes": 1 << 20, "sha256": hashlib.sha256(content).hexdigest()}

    @pytest.mark.parametrize("lsn", [COMMIT, COMMIT + 1])
    def test_one_outside_of_transactions_never_stands_in_front_of_what_came_before(self, lsn):
        log = Log(messages=["*"])
        log.transaction(TABLE, insert(1, "a"))
        with pytest.raises(CorruptInput):
            log.feed(logical_message(lsn=lsn, transactional=False))


class TestTombstones:
    def test_a_tombstone_follows_its_delete_with_its_key_and_its_position(self):
        log = Log(tombstones=True)
        log.transaction(TABLE, insert(1, "a"), delete(key=(1, None)), insert(1, "b"), delete(key=(1, None)))
        result = log.records()
        assert [_kind(record) for record in result] == ["schema", "c", "d", "tombstone", "c", "d", "tombstone"]
        assert [record.position.ordinal for record in result] == [0, 0, 1, 1, 2, 3, 3]
        assert [record.key for record in result if record.value is None] == [{"id": 1}] * 2
        assert [record.value["transaction"].get("last") for record in result if _kind(record) == "d"] == [None, True]

    def test_no_tombstone_without_a_key(self):
        log = Log(tombstones=True)
        log.transaction(relation(Column("id", INT8, key=True), identity="f"), delete(old=(1,)))
        assert outlines(log) == [(0, "schema"), (0, "d")]

    def test_a_tombstone_is_in_the_batch_of_its_delete(self):
        log = Log(tombstones=True, target_bytes=1)
        log.transaction(TABLE, *(delete(key=(number, None)) for number in range(200)))
        batches = log.batches()
        assert len(batches) > 2
        for batch in batches:
            assert batch.values[-1] is None
            assert batch.keys[-1] == batch.keys[-2]


class TestTransactions:
    def test_records_tell_where_a_transaction_begins_and_ends(self):
        log = Log(transactions=True)
        log.transaction(TABLE, OTHER, insert(1, "a"), insert(1, oid=2), update((1, "b")), truncate(2))
        result = log.records()
        assert [(record.position.ordinal, _kind(record)) for record in result] == [
            *((0, "BEGIN"), (0, "schema"), (0, "c"), (1, "schema"), (1, "c"), (2, "u"), (3, "t"), (4, "END")),
        ]
        first, last = result[0].value, result[-1].value
        assert result[0].key == result[-1].key == {"id": f"761:{COMMIT}"}
        assert (first["id"], first["event_count"], first["data_collections"]) == (f"761:{COMMIT}", None, None)
        assert (last["event_count"], last["data_collections"]) == (
            4,
            [
                {"data_collection": "public.accounts", "event_count": 2},
                {"data_collection": "public.orders", "event_count": 2},
            ],
        )
        assert last["source"]["position"] == str(Position(EPOCH, COMMIT, 4))
        assert (last["ts_ms"], last["source"]["ts_ms"]) == (NOW_MS, COMMIT_MS)
        assert result[-2].value["transaction"]["last"] is True

    def test_every_transaction_has_its_own(self):
        log = Log(transactions=True)
        log.transaction(TABLE, insert(1, "a"))
        log.transaction(commit_lsn=COMMIT + 50, end=END + 50)
        log.transaction(insert(2, "a"), commit_lsn=COMMIT + 100, end=END + 100)
        kinds = [kind for _, kind in outlines(log)]
        assert kinds == ["BEGIN", "schema", "c", "END", "BEGIN", "c", "END"]


@given(
    st.lists(st.lists(st.sampled_from("iudtm-o"), max_size=12), min_size=1, max_size=5),
    st.booleans(),
    st.booleans(),
    st.sampled_from([[], ["*"], ["outbox"]]),
)
@settings(deadline=None, max_examples=60)
def test_whatever_is_asked_for_the_chain_holds_and_changes_keep_their_positions(
    transactions, tombstones, ends, messages
):
    plain = Log(target_bytes=1)
    log = Log(target_bytes=1, tombstones=tombstones, transactions=ends, messages=messages)
    made = {
        "i": insert(1, "x" * 3000), "u": update((1, "y" * 3000)), "d": delete(key=(1, None)), "t": truncate(16400),
        "m": logical_message(), "o": logical_message(prefix="outbox"),
    }  # fmt: skip
    lsn = COMMIT
    for kinds in transactions:
        lsn += 100
        for each in (plain, log):
            each.feed(begin(lsn), TABLE, *(made[kind] for kind in kinds if kind != "-"), commit(lsn, lsn + 10))
            if "-" in kinds:
                each.feed(logical_message(lsn=lsn + 20, transactional=False))
    # then the bridge's own checks pass, batches are chained, and each follows what the one before ends with
    follows = Position.start(EPOCH)
    results = []
    for sealed in log.sealed():
        assert sealed.follows == follows
        follows = sealed.last
        results += records(opened(sealed))
    ops = "cudt"
    expected = [(record.position, record.value["op"]) for record in plain.changes()]
    assert [
        (record.position, record.value["op"]) for record in results if (record.value or {}).get("op", "-") in ops
    ] == expected
    positions = [record.position for record in results if record.value and "op" in record.value]
    assert positions == sorted(set(positions))
