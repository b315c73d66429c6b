"""`[deliveries.NAME]` of a bridge's file: what it means when left out, and what it refuses."""

import pytest

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError

FILE = """
[kafka]
bootstrap = "kafka:9092"
prefix = "staging"
[interconnect]
listen = "127.0.0.1:0"
[streams.bank]
sources = { "jakarta/bank" = [0] }
"""


def loaded(tmp_path, text, base=FILE):
    path = tmp_path / "bridge.toml"
    path.write_text(base + text)
    return load(path, BridgeFile)


def test_a_delivery_needs_an_address_alone(tmp_path):
    file = loaded(tmp_path, '[deliveries.alerts]\naddress = "alerts/{region}"\n')
    (delivery,) = file.deliveries.values()
    assert delivery.topics("alerts") == ("alerts", "alerts.dead-letters")
    assert file.delivery_group("alerts") == "staging.deliveries.alerts"
    # Nobody may receive, and nothing is given up.
    assert (delivery.receivers, delivery.dead_letter_after_hours) == ({}, 0)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[deliveries.a]\naddress = "cdc/{region}"', "addresses of cdc"),
        ('[deliveries.a]\naddress = "alerts/{district}"', "begins with fixed text"),
        ('[deliveries.a]\naddress = "x/{key}"\ntopic = "bank"', "have one topic"),
        ('[deliveries.a]\naddress = "x/{key}"\n[deliveries.b]\naddress = "x/y/{key}"', "begin alike"),
        ('[deliveries.a]\naddress = "x/{key}"\nmax_pending_records = 0', "max_pending_records"),
        ('[deliveries.a]\naddress = "x/{key}"\nreceivers = { "branch" = ["x/*/y"] }', "receivers"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(tmp_path, text, says):
    with pytest.raises(ConfigurationError, match=says):
        loaded(tmp_path, text)


def test_receivers_are_of_a_bridge_that_listens(tmp_path):
    base = FILE.replace('listen = "127.0.0.1:0"', 'url = "amqp://127.0.0.1:5672"')
    with pytest.raises(ConfigurationError, match="goes with a bridge that listens"):
        loaded(tmp_path, '[deliveries.a]\naddress = "x/{key}"\nreceivers = { "b" = ["x/y"] }', base)


def test_ages_are_given_with_their_unit_and_production_wants_replicas(tmp_path):
    file = loaded(tmp_path, '[deliveries.a]\naddress = "x/{key}"\ndead_letter_after = "7d"\n')
    assert file.deliveries["a"].dead_letter_after_hours == 168
    assert file.deliveries["a"].not_for_production() == [
        "replication = 1: a topic needs 3 replicas to outlive a broker"
    ]
