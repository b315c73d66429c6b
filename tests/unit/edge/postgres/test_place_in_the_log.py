"""Positions, transactions and times of the records that the log's messages become."""

from headrace.position import Position
from tests.unit.edge.postgres.accounts import DEFAULT, ID
from tests.unit.edge.postgres.messages import (
    COMMIT,
    COMMIT_MS,
    END,
    EPOCH,
    NOW_MS,
    XID,
    Log,
    begin,
    commit,
    insert,
    relation,
)


class TestPlaceInTheLog:
    def test_only_the_last_change_of_a_transaction_says_so(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"), insert(2, "a", "b"), insert(3, "a", "b"))
        assert [change.value["transaction"] for change in log.changes()] == [
            {"id": f"{XID}:{COMMIT}", "total_order": 1},
            {"id": f"{XID}:{COMMIT}", "total_order": 2},
            {"id": f"{XID}:{COMMIT}", "total_order": 3, "last": True},
        ]

    def test_ordinals_count_changes_alone_and_begin_anew_in_each_transaction(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"), relation(ID, oid=2, table="other"), insert(2, oid=2))
        log.transaction(insert(3, "a", "b"), commit_lsn=COMMIT + 100, end=END + 100)
        assert [record.position for record in log.changes()] == [
            Position(EPOCH, COMMIT, 0),
            Position(EPOCH, COMMIT, 1),
            Position(EPOCH, COMMIT + 100, 0),
        ]

    def test_a_change_carries_its_own_position_as_text(self):
        log = Log()
        log.transaction(DEFAULT, *(insert(number, "a", "b") for number in range(20)))
        for record in log.records():
            assert record.value["source"]["position"] == str(record.position)

    def test_times_are_those_of_the_commit_and_of_the_reading(self):
        log = Log()
        log.feed(begin(), DEFAULT, insert(1, "a", "b"))
        log.decoder.feed(insert(2, "a", "b"), NOW_MS + 5)
        log.feed(commit())
        assert [(change.value["source"]["ts_ms"], change.value["ts_ms"]) for change in log.changes()] == [
            (COMMIT_MS, NOW_MS),
            (COMMIT_MS, NOW_MS + 5),
        ]

    def test_the_decoder_knows_what_it_was_fed_whole(self):
        log = Log()
        decoder = log.decoder
        assert (decoder.in_transaction, decoder.committed, decoder.end_lsn) == (False, None, 0)
        log.feed(begin(), DEFAULT, insert(1, "a", "b"), insert(2, "a", "b"))
        assert (decoder.in_transaction, decoder.committed, decoder.end_lsn) == (True, None, 0)
        log.feed(commit())
        assert (decoder.in_transaction, decoder.committed, decoder.end_lsn) == (False, Position(EPOCH, COMMIT, 1), END)

    def test_a_transaction_without_changes_moves_the_end_alone(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"))
        log.transaction(commit_lsn=COMMIT + 100, end=END + 100)
        assert log.decoder.committed == Position(EPOCH, COMMIT, 0)
        assert log.decoder.end_lsn == END + 100
