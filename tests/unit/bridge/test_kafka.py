"""The administration client is made anew when it is of no use, and not more often than it takes to see that."""

from bridge import kafka
from headrace.configuration.kafka import KafkaConnection


def test_an_administration_client_is_made_anew_once_it_had_its_time(monkeypatch):
    shared = kafka.admin(KafkaConnection(bootstrap="127.0.0.1:1"))
    first = shared.list_topics.__self__
    shared.renew()
    assert shared.list_topics.__self__ is first
    monkeypatch.setattr(kafka, "PATIENCE", 0.0)
    shared.renew()
    assert shared.list_topics.__self__ is not first
    assert list(shared.refusals) == []
