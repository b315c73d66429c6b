"""The thread of requests: what it makes of records and answers, and of a Kafka that fails."""

import pytest

from bridge.model.delivery import Accept, Reject, Release
from bridge.requests import worker as module
from bridge.requests.worker import RequestWorker
from headrace.configuration.bridge import Kafka
from headrace.configuration.sections import Topics
from headrace.errors import NeedsOperator, NotConnected
from headrace.requests import Content, decode_part, encode, new_request, parts

SOURCE = "jakarta/bank"


class Reader:
    def __init__(self):
        self.values, self.has_caught_up, self.error, self.closed = [], True, None, False

    def read(self, _most, _seconds):
        if self.error is not None:
            raise self.error
        values, self.values = self.values, []
        return iter(values)

    def close(self):
        self.closed = True


class Writer:
    def __init__(self):
        self.written, self.error = [], None

    def write(self, key, value, written):
        if self.error is None:
            self.written.append((key.decode(), value))
        written(self.error)

    def poll(self):
        pass

    def flush(self, _seconds):
        pass


class Setup:
    def __init__(self, monkeypatch):
        monkeypatch.setattr(module, "_AGAIN_SECONDS", 0)
        self.readers, self.writer, self.sent, self.settled = [Reader()], Writer(), [], []
        self.opening = None
        self.worker = RequestWorker(
            Kafka(bootstrap="x"),
            Topics("q", "a"),
            {SOURCE, "london/bank"},
            lambda source: source == SOURCE,
            send=lambda addresses, sources: self.sent.append((addresses, sources)),
            settle=lambda ticket, outcome: self.settled.append((ticket, outcome)),
            open_reader=self.open,
            open_writer=lambda _connection, _topic: self.writer,
        )

    def open(self, _connection, _topic):
        if self.opening is not None:
            raise self.opening
        return self.readers[-1]

    def asked(self, **changes):
        request = new_request(changes.pop("source", SOURCE), "status", "ann", 30)
        self.readers[-1].values.append((encode(request), None))
        self.worker.turn(0)
        return request

    def answered(self, body, source=SOURCE):
        self.worker.received(source, 7, body)
        self.worker.turn(0)
        return self.settled.pop()[1]


@pytest.fixture
def setup(monkeypatch):
    return Setup(monkeypatch)


def part_of(request, data=1):
    return encode(next(parts(request, "done", Content(data=data))))


def test_an_answer_is_accepted_when_kafka_has_it_and_unchanged(setup):
    request = setup.asked()
    assert setup.sent == [([f"requests/{SOURCE}"], [SOURCE])]
    setup.writer.error = NotConnected("Kafka is away")
    assert isinstance(setup.answered(part_of(request)), Release)
    setup.writer.error = None
    assert setup.answered(part_of(request)) == Accept()
    assert setup.writer.written == [(SOURCE, part_of(request))]
    # The same once more, as when the outcome was lost.
    assert setup.answered(part_of(request)) == Accept()
    assert len(setup.writer.written) == 1


def test_forged_answers_are_rejected_and_late_ones_dropped(setup):
    request = setup.asked()
    assert isinstance(setup.answered(b"no answer"), Reject)
    assert isinstance(setup.answered(part_of(request), "london/bank"), Reject)
    of_bridge = encode(next(parts(request, "done", Content(), "bridge")))
    assert isinstance(setup.answered(of_bridge), Reject)
    nobody = new_request(SOURCE, "status", "ann", 30)
    assert setup.answered(part_of(nobody)) == Accept()
    # After a start the request of an answer may still be to be read.
    setup.readers[-1].has_caught_up = False
    assert isinstance(setup.answered(part_of(nobody)), Release)
    assert setup.writer.written == []


def test_records_that_are_no_requests_or_of_other_bridges_stop_nothing(setup):
    setup.readers[-1].values += [(value, None) for value in (b"", b"{}", b'{"version": 9}', b"\xff" * 1000)]
    setup.asked(source="paris/bank")
    setup.asked(source="london/bank")
    assert setup.sent == []
    setup.asked()
    assert len(setup.sent) == 1


def test_a_topic_that_is_missing_is_read_once_it_is_there(setup, caplog):
    setup.opening = NeedsOperator("no topic q", hint="Run 'headrace bridge init'.")
    setup.worker.turn(0)
    setup.worker.turn(0)
    assert caplog.text.count("no topic q. Run 'headrace bridge init'.") == 1
    setup.opening = None
    first = setup.readers[-1]
    setup.asked()
    first.error = NotConnected("Kafka is away")
    setup.worker.turn(0)
    assert first.closed
    setup.readers.append(Reader())
    setup.asked()
    assert len(setup.sent) == 2


def test_a_rejected_request_is_answered_by_the_bridge(setup):
    request = setup.asked()
    entry = setup.worker.pending.take(f"requests/{SOURCE}")
    setup.worker.pending.rejected(entry, "amqp:decode-error", "version 9")
    ((key, value),) = setup.writer.written
    part = decode_part(value)
    assert (key, part.id, part.outcome, part.by) == (SOURCE, request.id, "refused", "bridge")
