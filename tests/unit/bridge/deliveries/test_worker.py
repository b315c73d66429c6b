"""A delivery's thread, turn by turn: what is committed when, what is paused, what Kafka may do to it."""

import pytest

from bridge.deliveries import worker as worker_module
from bridge.deliveries.outbox import Outbox
from bridge.deliveries.record import DeliveryMetrics, End, Record
from bridge.deliveries.worker import Worker
from headrace.configuration.bridge import BridgeFile, Interconnect, Kafka, Stream
from headrace.configuration.sections import Delivery
from headrace.errors import NeedsOperator, Retryable


class Reader:
    """A topic and a group, without Kafka."""

    def __init__(self, _connection, _group, _topic, _seconds, *, assigned, revoked):
        self.assigned, self.revoked = assigned, revoked
        #: What comes next: a record, an End, or an error to raise.
        self.events = []
        self.commits = []
        self.paused = set()
        self.failure = None
        self.failed = self.closed = False

    def read(self, _most, _seconds):
        while self.events:
            event = self.events.pop(0)
            if isinstance(event, Exception):
                raise event
            yield event

    def count_removed(self):
        return {}

    def check(self):
        if self.failure:
            raise self.failure

    def commit(self, offsets, *, wait):
        if offsets:
            self.commits.append((dict(offsets), wait))
        if wait and self.failure:
            raise self.failure

    def commit_failed(self):
        failed, self.failed = self.failed, False
        return failed

    def pause(self, partition):
        self.paused.add(partition)

    def resume(self, partition):
        self.paused.discard(partition)

    def close(self):
        self.closed = True


class Writer:
    def __init__(self, _connection, _topic):
        self.written, self.failure, self.reports = [], None, []

    def write(self, key, value, written, headers):
        self.reports.append((dict(headers), written))

    def poll(self):
        reports, self.reports = self.reports, []
        for headers, written in reports:
            if self.failure is None:
                self.written.append(int(headers["headrace.offset"]))
            written(self.failure)

    def flush(self, _seconds):
        self.poll()


class Setup:
    def __init__(self, clock, **settings):
        file = BridgeFile(
            kafka=Kafka(bootstrap="kafka:9092"),
            interconnect=Interconnect(listen="127.0.0.1:0"),
            streams={"bank": Stream(sources={"jakarta/bank": [0]})},
            deliveries={"alerts": Delivery(address="alerts/{region}", **settings)},
        )
        self.clock = clock
        self.figures = DeliveryMetrics()
        self.outbox = Outbox("alerts", file.deliveries["alerts"], self.figures)
        self.woken = []
        self.worker = Worker(
            file,
            "alerts",
            self.outbox,
            self.figures,
            lambda _outbox, addresses: self.woken.extend(addresses),
            open_reader=Reader,
            open_writer=Writer,
        )
        self.reader, self.letters = self.worker._reader, self.worker._dead_letters
        self.reader.assigned(0)

    def turn(self, *events, seconds=10.0):
        self.clock.now += seconds
        self.reader.events += events
        self.worker.turn(0)

    def take(self):
        return self.outbox.take("alerts/jakarta")


def record(offset, key=b"jakarta/1", timestamp=0):
    return Record("alerts", 0, offset, key, b"v", (), timestamp)


@pytest.fixture
def setup(monkeypatch):
    class Clock:
        now = 1000.0

        def monotonic(self):
            return self.now

        def time(self):
            return 1_000_000.0

    clock = Clock()
    monkeypatch.setattr(worker_module, "time", clock)
    return lambda **settings: Setup(clock, **settings)


def test_offsets_are_committed_without_waiting_once_all_before_them_are_accepted(setup):
    made = setup()
    made.turn(record(0), record(1, b"jakarta/2"))
    assert "alerts/jakarta" in made.woken
    # Where nothing was committed yet, where it begins is: readers of lag know then that it is read.
    assert made.reader.commits == [({0: 0}, False)]
    first, second = made.take(), made.take()
    made.outbox.accepted(second)
    made.turn()
    made.outbox.accepted(first)
    made.turn(End(0, 5))
    assert made.reader.commits[1:] == [({0: 5}, False)]
    made.turn()
    assert len(made.reader.commits) == 2
    # One that failed behind our back is made again.
    made.reader.failed = True
    made.turn()
    assert made.reader.commits[2:] == [({0: 5}, False)]


def test_what_is_settled_is_committed_before_a_partition_goes_and_not_after_it_was_taken(setup):
    made = setup()
    for lost in (False, True):
        made.reader.assigned(0)
        made.turn(record(0), record(1))
        made.outbox.accepted(made.take())
        made.reader.commits.clear()
        made.reader.revoked(0, lost)
        assert made.reader.commits == ([] if lost else [({0: 1}, True)])
        assert (made.take(), made.figures.assigned) == (None, 0)
    # A failure to commit is no reason to keep it.
    made.reader.assigned(0)
    made.turn(record(0))
    made.outbox.accepted(made.take())
    made.reader.failure = Retryable("no coordinator")
    made.reader.revoked(0, False)
    assert made.figures.assigned == 0


def test_a_partition_with_too_much_pending_is_paused_until_half_of_it_is_settled(setup):
    made = setup(max_pending_records=4)
    made.turn(*[record(offset, b"jakarta/%d" % offset) for offset in range(4)])
    assert (made.reader.paused, made.figures.paused) == ({0}, 1)
    for expected in ({0}, set()):
        made.outbox.accepted(made.take())
        made.turn()
        assert made.reader.paused == expected
    # It is a new one for whoever has it next.
    made.turn(*[record(offset, b"jakarta/%d" % offset) for offset in range(4, 6)])
    assert made.reader.paused == {0}
    made.reader.revoked(0, False)
    made.reader.assigned(0)
    made.turn()
    assert made.figures.paused == 0


def test_a_dead_letter_that_kafka_does_not_take_is_written_again_and_holds_its_offset(setup):
    made = setup()
    made.letters.failure = NeedsOperator("no such topic", hint="Run 'headrace bridge init'.")
    made.turn(record(0, b"/no region"))
    made.turn(End(0, 1))
    assert (made.figures.state, made.figures.reason) == ("needs an operator", "no such topic")
    assert made.outbox.committable() == {}
    made.letters.failure = None
    made.turn()
    made.turn()
    made.turn()
    assert (made.letters.written, made.figures.dead_lettered, made.figures.state) == ([0], 1, "delivering")
    assert made.reader.commits[-1] == ({0: 1}, False)


def test_what_kafka_reports_is_the_state_until_it_passes(setup):
    made = setup()
    made.turn(record(0), Retryable("brokers are unavailable"), record(1))
    assert (made.figures.state, made.figures.reason) == ("waiting for Kafka", "brokers are unavailable")
    assert made.take().record.offset == 0
    made.turn()
    assert made.figures.state == "delivering"
    # Nothing comes of a topic that is gone: it is looked for.
    made.reader.revoked(0, False)
    made.reader.failure = NeedsOperator("topic is gone")
    made.turn()
    assert (made.figures.state, made.figures.reason) == ("needs an operator", "topic is gone")
    made.reader.failure = None
    made.turn()
    assert made.figures.state == "delivering"


def test_old_records_are_given_up_where_the_file_says_so(setup):
    made = setup(dead_letter_after_hours=1)
    now = 1_000_000_000
    made.turn(record(0, timestamp=now - 3_700_000), record(1, timestamp=now - 3_500_000))
    made.turn()
    assert made.letters.written == [0]
    assert made.take().record.offset == 1
    forever = setup()
    forever.turn(record(0, timestamp=1))
    forever.turn()
    assert forever.letters.written == []


def test_the_end_commits_what_is_settled_and_leaves_the_group(setup):
    made = setup()
    made.turn(record(0), record(1))
    made.outbox.accepted(made.take())
    made.worker.close(1.0)
    assert made.reader.commits[-1] == ({0: 1}, True)
    assert (made.reader.closed, made.figures.state) == (True, "stopped")
