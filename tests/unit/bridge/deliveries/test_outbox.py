"""Order per key, and commits that never go past a record without an outcome: by cases, and with random outcomes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.deliveries.outbox import NO_ADDRESS, TOO_OLD, Outbox
from bridge.deliveries.pending import PartitionOffsets
from bridge.deliveries.record import DeliveryMetrics, Record
from headrace.configuration.sections import Delivery


def record(offset, key=b"jakarta/1", partition=0, timestamp=0, size=0, headers=()):
    return Record("alerts", partition, offset, key, b"v" * size, headers, timestamp)


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def made(**settings):
    clock = Clock()
    figures = DeliveryMetrics()
    outbox = Outbox(
        "alerts",
        Delivery(address="alerts/{region}", **settings),
        figures,
        clock=clock,
        pause=float,
    )
    outbox.assign(0)
    return outbox, clock, figures


def test_the_records_of_one_key_go_one_after_the_other_and_those_of_others_meanwhile():
    outbox, _, _ = made()
    for offset, key in enumerate([b"jakarta/1", b"jakarta/1", b"jakarta/2"]):
        outbox.read(record(offset, key))
    first, other = outbox.take("alerts/jakarta"), outbox.take("alerts/jakarta")
    assert (first.record.offset, other.record.offset) == (0, 2)
    assert outbox.take("alerts/jakarta") is None
    outbox.accepted(first)
    assert outbox.take("alerts/jakarta").record.offset == 1


def test_an_offset_is_committed_only_when_all_records_before_it_are_settled():
    outbox, _, _ = made()
    for offset in (3, 5, 9):
        outbox.read(record(offset, b"jakarta/%d" % offset))
    entries = [outbox.take("alerts/jakarta") for _ in range(3)]
    assert outbox.committable() == {0: 3}
    outbox.accepted(entries[2])
    assert outbox.committable() == {0: 3}
    outbox.accepted(entries[0])
    assert outbox.committable() == {0: 5}
    outbox.accepted(entries[1])
    assert outbox.committable() == {0: 10}
    # Markers of transactions are at the end of a log, and no records.
    outbox.reach(0, 12)
    assert outbox.committable() == {0: 12}
    outbox.committed({0: 12})
    assert outbox.committable() == {}


def test_a_record_that_came_back_waits_for_its_pause_and_holds_up_its_own_key_alone():
    outbox, clock, figures = made()
    outbox.read(record(0, b"jakarta/1"))
    outbox.read(record(1, b"jakarta/1"))
    first = outbox.take("alerts/jakarta")
    assert outbox.due("alerts/jakarta") is None
    outbox.returned(first)
    assert outbox.due("alerts/jakarta") == 1.0
    outbox.read(record(2, b"jakarta/2"))
    assert outbox.take("alerts/jakarta").record.offset == 2
    assert outbox.take("alerts/jakarta") is None
    clock.now = 1.0
    assert outbox.take("alerts/jakarta") is first
    assert figures.redelivered == 1


def test_what_was_on_a_lost_link_is_sent_again_at_once():
    outbox, _, _ = made()
    outbox.read(record(0))
    outbox.read(record(1, b"jakarta/2"))
    first = outbox.take("alerts/jakarta")
    outbox.lost(first)
    assert outbox.take("alerts/jakarta") is first


def test_a_rejected_record_holds_its_key_and_its_offset_until_its_dead_letter_is_written():
    outbox, _, figures = made()
    outbox.read(record(0))
    outbox.read(record(1))
    outbox.rejected(outbox.take("alerts/jakarta"), "amqp:not-allowed", "no such card")
    assert outbox.take("alerts/jakarta") is None
    (letter,) = outbox.take_condemned()
    assert (letter.condition, letter.description) == ("amqp:not-allowed", "no such card")
    assert outbox.take_condemned() == []
    outbox.bury_again(letter)
    assert outbox.take_condemned() == [letter]
    assert outbox.committable() == {0: 0}
    outbox.note_buried(letter)
    assert outbox.committable() == {0: 1}
    assert "alerts/jakarta" in outbox.take_fresh()
    assert outbox.take("alerts/jakarta").record.offset == 1
    assert figures.dead_lettered == 1


@pytest.mark.parametrize("key", [None, b"", b"/1", b"jak arta/1", b"\xff", b"#/1"])
def test_a_record_without_a_region_is_a_dead_letter_and_others_pass(key):
    outbox, _, _ = made()
    outbox.read(record(0, key))
    outbox.read(record(1))
    (letter,) = outbox.take_condemned()
    assert letter.condition == NO_ADDRESS
    assert "region" in letter.description
    assert outbox.addresses() == ["alerts/jakarta"]
    outbox.accepted(outbox.take("alerts/jakarta"))
    assert outbox.committable() == {0: 0}
    outbox.note_buried(letter)
    assert outbox.committable() == {0: 2}


def test_a_partition_is_full_at_so_many_records_or_bytes_after_its_oldest_and_has_space_at_half():
    outbox, _, _ = made(max_pending_records=4)
    for offset in range(4):
        outbox.read(record(offset, b"jakarta/%d" % offset))
    assert outbox.is_full(0)
    entries = [outbox.take("alerts/jakarta") for _ in range(4)]
    for entry in entries[1:]:
        outbox.accepted(entry)
    # A restart would send all four again.
    assert outbox.is_full(0)
    outbox.accepted(entries[0])
    assert outbox.has_space(0)
    large, _, _ = made(max_pending_megabytes=1)
    large.read(record(0, size=1 << 20))
    assert large.is_full(0)
    large.accepted(large.take("alerts/jakarta"))
    assert large.has_space(0)


def test_no_more_are_on_the_way_to_an_address_than_its_window_takes():
    outbox, _, _ = made(window=2)
    for offset in range(3):
        outbox.read(record(offset, b"jakarta/%d" % offset))
    outbox.read(record(3, b"london/1"))
    entries = [outbox.take("alerts/jakarta"), outbox.take("alerts/jakarta")]
    assert outbox.take("alerts/jakarta") is None
    assert outbox.take("alerts/london").record.offset == 3
    outbox.returned(entries[0])
    assert outbox.take("alerts/jakarta").record.offset == 2


def test_old_records_become_dead_letters_in_order_but_none_that_is_on_the_way():
    outbox, _, _ = made(dead_letter_after_hours=1)
    for offset, age in enumerate([10, 20, 30, 200]):
        outbox.read(record(offset, timestamp=age))
    outbox.read(record(4, b"jakarta/2", timestamp=10))
    sent = outbox.take("alerts/jakarta")
    outbox.expire(100)
    assert [(entry.record.offset, entry.condition) for entry in outbox.take_condemned()] == [(4, TOO_OLD)]
    outbox.lost(sent)
    outbox.expire(100)
    letters = outbox.take_condemned()
    assert [entry.record.offset for entry in letters] == [0, 1, 2]
    for letter in reversed(letters):
        outbox.note_buried(letter)
    assert outbox.take("alerts/jakarta").record.offset == 3


@pytest.mark.parametrize("keys", [1, 5, 1000])
@pytest.mark.parametrize("region", [b"jakarta", b"no address"])
def test_what_nobody_takes_costs_no_memory_once_it_is_a_dead_letter(keys, region):
    """Each record, and each key, that came back was noted as ready to be sent, for good."""
    outbox, _, _ = made(dead_letter_after_hours=1)
    outbox.read(record(0, b"jakarta/first", timestamp=1 << 40))
    for offset in range(1, 1000):
        outbox.read(record(offset, region + b"/%d" % (offset % keys), timestamp=offset))
        outbox.expire(offset - 10)
        for letter in outbox.take_condemned():
            outbox.note_buried(letter)
    assert sum(len(line.ready) for line in outbox._pending._lines.values()) <= 12
    for partition in range(1, 1000):
        outbox.assign(partition)
        outbox.read(record(0, partition=partition))
        outbox.revoke(partition)
    assert sum(len(line.ready) for line in outbox._pending._lines.values()) <= 12
    assert outbox.take("alerts/jakarta").record.key == b"jakarta/first"


def test_what_becomes_of_a_record_whose_partition_was_taken_away_is_not_ours():
    outbox, _, figures = made()
    for offset in range(3):
        outbox.read(record(offset, b"jakarta/%d" % offset))
    entries = [outbox.take("alerts/jakarta") for _ in range(3)]
    outbox.revoke(0)
    assert outbox.committable() == {}
    outbox.accepted(entries[0])
    outbox.returned(entries[1])
    outbox.rejected(entries[2], "", "")
    assert (outbox.take_condemned(), outbox.addresses(), outbox.committable()) == ([], [], {})
    outbox.read(record(7))
    assert figures.pending == 0
    outbox.assign(0)
    outbox.read(record(0))
    assert outbox.take("alerts/jakarta").record.offset == 0
    assert outbox.committable() == {0: 0}


def test_the_oldest_pending_record_gives_the_age(monkeypatch):
    outbox, _, figures = made()
    assert figures.oldest_age == 0
    for offset in range(2):
        outbox.read(record(offset, timestamp=1000 * (offset + 1)))
    monkeypatch.setattr("bridge.deliveries.record.time.time", lambda: 11.0)
    assert (figures.oldest_age, figures.pending) == (10.0, 2)
    outbox.accepted(outbox.take("alerts/jakarta"))
    assert (figures.oldest_age, figures.pending) == (9.0, 1)


def test_nothing_is_sent_after_the_stop():
    outbox, _, _ = made()
    outbox.read(record(0))
    outbox.stop()
    assert outbox.take("alerts/jakarta") is None


@given(
    offsets=st.lists(st.integers(0, 400), unique=True, max_size=60).map(sorted),
    order=st.randoms(use_true_random=False),
)
def test_what_may_be_committed_is_the_first_offset_that_is_not_settled(offsets, order):
    tracked = PartitionOffsets()
    for offset in offsets:
        assert tracked.add(offset)
        assert not tracked.add(offset)
    unsettled = set(offsets)
    for offset in order.sample(offsets, len(offsets)):
        tracked.settle(offset)
        unsettled.discard(offset)
        assert tracked.committable == min(unsettled, default=offsets[-1] + 1)
