"""XA transactions in two steps: their rows come out when they commit, wherever they were meanwhile."""

import json
from collections import deque

import pytest

from edge.mysql.deferred_transactions import NotPrepared, PreparedTransactions
from edge.mysql.events import xid as xid_of
from edge.mysql.snapshot_reader import SnapshotReader
from edge.mysql.table_cache import Copied
from headrace.errors import Retryable
from tests.unit.edge.mysql import chunks
from tests.unit.edge.mysql.events import (
    NOW_MS,
    SERVER_UUID,
    Column,
    EmptyLog,
    feed,
    make_decoder,
    mariadb_gtid,
    mysql_gtid,
    payload,
    query,
    rotate,
    rows,
    table_map,
    xa_prepared,
    xid,
)  # fmt: skip

ACCOUNTS = table_map(Column("id", 3, unsigned=False))
FIRST, SECOND, THIRD = (rows(23, 1, b"\0" + bytes([number, 0, 0, 0])) for number in (1, 2, 3))
PREPARED, COMPLETED = 0x40, 0x80


class Log(EmptyLog):
    """A log that holds some transactions, by where they begin."""

    def __init__(self, places=None, **held):
        self.held, self.places, self.asked = held, places or {}, []
        self.rounds = 0

    def rows(self, start):
        return iter([one and (one, len(one)) for one in self.held[f"at{start & 0xFFFFFFFF}"]])

    def find(self, xid, before):
        self.asked.append((xid, before & 0xFFFFFFFF))
        for _ in range(self.rounds):
            yield
        return self.places


def prepare(name, *inner, number=1, start=200):
    return [
        mariadb_gtid(number, start, flags=PREPARED), ACCOUNTS, *inner,
        query(f"XA END X'{name.hex()}',X'',1", 0), xa_prepared(name, start + 90),
    ]  # fmt: skip


def decide(words, number=3, start=600):
    return [mariadb_gtid(number, start, flags=COMPLETED), query(words, start + 50)]


def plain(*inner, number=2, start=400):
    return [mariadb_gtid(number, start), ACCOUNTS, *inner, xid(start + 90)]


def changes(batcher):
    values = [json.loads(value) for value in batcher.values if b'"op":' in value]
    return [(change["after"]["id"], change["source"]["gtid"], change["source"]["pos"]) for change in values]


def test_prepared_changes_come_at_the_place_of_their_commit():
    decoder, batcher = make_decoder("mariadb")

    feed(decoder, rotate(), *prepare(b"a", FIRST, SECOND))
    assert (decoder.in_transaction, decoder.passed, changes(batcher)) == (False, 7 << 32 | 290, [])
    feed(decoder, *plain(THIRD), *decide("XA COMMIT X'61',X'',1"))

    assert changes(batcher) == [(3, "0-5-2", 490 - 90), (1, "0-5-3", 600), (2, "0-5-3", 600)]
    last = json.loads(batcher.values[-1])
    assert (last["source"]["position"], last["transaction"]["last"]) == ("00000001/0000000700000258/00000001", True)
    assert [mark.group.number for mark in decoder.marks] == [1, 2, 3]
    assert list(decoder.xa.decided) == ["X'61',X'',1"]


def test_rolled_back_changes_never_come():
    decoder, batcher = make_decoder("mariadb")

    feed(decoder, rotate(), *prepare(b"a", FIRST), *decide("XA ROLLBACK X'61',X'',1"), *plain(THIRD, start=800))

    assert [change[0] for change in changes(batcher)] == [3]
    assert decoder.passed == 7 << 32 | 890


@pytest.mark.parametrize("one_phase", [True, False])
@pytest.mark.parametrize("packs", [True, False])
def test_xa_of_mysql_is_known_by_its_statements(one_phase, packs):
    decoder, batcher = make_decoder()
    inner = [
        query("XA START X'61',X'',1", 0), ACCOUNTS, FIRST, query("SAVEPOINT `s`", 0), query("XA END X'61',X'',1", 0),
        xa_prepared(b"a", 500, one_phase=one_phase),
    ]  # fmt: skip

    feed(decoder, rotate(), mysql_gtid(1, 200), *([payload(inner, 500)] if packs else inner))
    if not one_phase:
        assert changes(batcher) == []
        feed(decoder, mysql_gtid(2, 600), query("XA COMMIT X'61',X'',1", 700))

    number, pos = (1, 200) if one_phase else (2, 600)
    assert changes(batcher) == [(1, f"{SERVER_UUID}:{number}", pos)]
    assert decoder.passed == 7 << 32 | (500 if one_phase else 700)


def test_what_was_prepared_before_this_session_is_read_again():
    log = Log(
        {"X'61',X'',1": 6 << 32 | 77, "X'62',X'',1": 6 << 32 | 88}, at77=[ACCOUNTS, FIRST], at88=[ACCOUNTS, SECOND]
    )
    decoder, batcher = make_decoder("mariadb", again=log)

    feed(decoder, rotate(), *decide("XA COMMIT X'61',X'',1", number=1, start=300))
    feed(decoder, *plain(THIRD), *decide("XA COMMIT X'62',X'',1"))

    assert [change[0] for change in changes(batcher)] == [1, 3, 2]
    assert log.asked == [("X'61',X'',1", 300 - len(mariadb_gtid(1, 300)))]


def test_a_long_search_gives_the_capturing_thread_its_turn():
    """Reading files of the binlog again takes minutes: each call returns after a round, and counts as work done (E10)."""
    log = Log({"X'61',X'',1": 6 << 32 | 77}, at77=[ACCOUNTS, None, FIRST])
    log.rounds = 3
    decoder, batcher = make_decoder("mariadb", again=log)
    for each in (rotate(), *decide("XA COMMIT X'61',X'',1", number=1, start=300), *plain(THIRD)):
        decoder.feed(each, len(each), NOW_MS)

    rounds = []
    while decoder.xa.is_replaying:
        assert changes(batcher) == []
        rounds.append(decoder.xa.replay(NOW_MS))

    assert len(rounds) == 5
    assert all(rounds)
    assert [change[0] for change in changes(batcher)] == [1, 3]


def test_what_is_too_much_to_hold_is_read_again():
    log = Log(at1=[FIRST], at2=[SECOND])
    held = PreparedTransactions(log, most=2 * len(FIRST))

    for start, name in ((1, "a"), (2, "b")):
        held.begin(start)
        held.hold(FIRST, len(FIRST))
        held.hold(SECOND, len(SECOND))
        held.end(name)

    assert [each for each, _ in held.take("a", 9)] == [FIRST]
    assert [each for each, _ in held.take("b", 9)] == [FIRST, SECOND]
    with pytest.raises(NotPrepared, match="b"):
        next(held.take("b", 9))


def test_large_commit_is_decoded_in_rounds_and_what_follows_waits():
    decoder, batcher = make_decoder("mariadb")
    many = rows(23, 1, b"\0\1\0\0\0" * 100_000)

    feed(decoder, rotate(), *prepare(b"a", many, many, many, many))
    for each in (*decide("XA COMMIT X'61',X'',1"), *plain(THIRD, start=800)):
        decoder.feed(each, len(each), NOW_MS)
    rounds, taken_rows = [], 0
    while decoder.xa.is_replaying:
        rounds.append(decoder.xa.replay(NOW_MS))
        assert decoder.in_transaction == decoder.xa.is_replaying
        taken_rows += sum(batch.count for batch in batcher.take())

    assert len(rounds) > 1
    assert taken_rows + batcher.seal().count == 400_000 + 1 + 1
    assert decoder.passed == 7 << 32 | 890


class Server:
    """A server that commits an XA transaction and is not done."""

    is_mariadb = True

    def rows(self, statement):
        assert statement == "xa recover"
        return [(7, 1, 2, b"abr")]


def test_chunk_waits_for_a_commit_that_is_in_the_log_and_not_visible_yet():
    decided = {xid_of(7, b"a", b"br"): None}
    reader = SnapshotReader(Server, None, None, deque(), decided)

    with pytest.raises(Retryable, match="not visible yet"):
        reader.read_keys(Copied(chunks.table(), None, None), None, [], 1000)
    decided.clear()
    with pytest.raises(AssertionError):
        reader.read_keys(Copied(chunks.table(), None, None), None, [], 1000)
