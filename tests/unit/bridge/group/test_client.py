"""The metadata of the consumer, as librdkafka writes them down; and a consumer that was fenced and does not know it yet."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from bridge.group import client
from bridge.group.client import KafkaMember, parse
from bridge.model.ports import InstanceFenced


def test_group_generation_and_member_are_read():
    result = parse(b"CGMDv2:\x07\x00\x00\x00bridges\x00one-4ece\x00\x00one\x00")
    assert (result.group, result.generation, result.member, result.is_usable) == ("bridges", 7, "one-4ece", True)


@pytest.mark.parametrize(
    "opaque", [b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x00one\x00", b"CGMDv2:\x01\x00\x00\x00g\x00\x00\x00one\x00"]
)
def test_what_a_client_without_a_group_says_is_of_no_use(opaque):
    assert not parse(opaque).is_usable


@pytest.mark.parametrize("opaque", [b"", b"CGMDv2:", b"CGMDv3:\x01\x00\x00\x00g\x00m\x00"])
def test_a_form_that_is_not_known_is_none(opaque):
    assert parse(opaque) is None


class Consumer:
    """One that librdkafka has found fenced, which nobody has polled yet: `poll` says so once."""

    def __init__(self, *, is_fenced):
        self.is_fenced, self.is_closed = is_fenced, False

    def _change(self, *_topics, **_callbacks):
        if self.is_fenced:
            raise KafkaException(KafkaError(KafkaError._FATAL))

    subscribe = unsubscribe = _change

    def assignment(self):
        return []

    def poll(self, _seconds):
        return None

    def close(self):
        self.is_closed = True


@pytest.fixture
def consumers(monkeypatch):
    made = [Consumer(is_fenced=False), Consumer(is_fenced=False)]
    waiting = iter(made)
    monkeypatch.setattr(client, "member", lambda *_settings: next(waiting))
    return made


@pytest.fixture
def fenced(consumers):
    kafka_member = KafkaMember(None, None, "bridges", "one", 8.0)
    kafka_member.join(["bank"], *[lambda _places: None] * 3)
    consumers[0].is_fenced = True
    return kafka_member


def test_a_client_that_was_fenced_is_made_again_like_any_other(fenced, consumers):
    """The bridge ended by an error of the client's, where Kafka came back after the time for a new one."""
    fenced.renew()
    fenced.join(["bank"], *[lambda _places: None] * 3)
    fenced.poll(0)
    assert consumers[0].is_closed
    assert not consumers[1].is_closed


def test_a_client_that_was_fenced_and_is_to_join_again_reports_it(fenced):
    fenced.rejoin()
    with pytest.raises(InstanceFenced):
        fenced.poll(0)
    fenced.reset()
    fenced.join(["bank"], *[lambda _places: None] * 3)
    fenced.poll(0)


def test_a_client_that_was_fenced_ends(fenced, consumers):
    fenced.close(leave=True)
    assert consumers[0].is_closed
