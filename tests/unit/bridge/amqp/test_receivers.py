"""Who may receive what: nobody whom the file does not name."""

import pytest

from bridge.amqp.authorization import receiver_refusal
from bridge.deliveries.outbox import Outbox
from bridge.deliveries.record import DeliveryMetrics
from headrace.configuration.sections import Delivery

GIVEN = {"jakarta-branch": ["alerts/jakarta"], "audit": ["alerts/*"], "wrong": ["cdc/jakarta/bank", "alert/*"]}


def refused(address, identity, *, demanded=True, receivers=GIVEN):
    outbox = Outbox("alerts", Delivery(address="alerts/{region}", receivers=receivers), DeliveryMetrics())
    result = receiver_refusal([outbox], address, identity, demanded=demanded)
    return result and result[0]


@pytest.mark.parametrize(("address", "identity"), [("alerts/jakarta", "jakarta-branch"), ("alerts/london", "audit")])
def test_an_identity_receives_what_is_named_for_it(address, identity):
    assert refused(address, identity) is None


@pytest.mark.parametrize(
    ("address", "identity"),
    [
        ("alerts/london", "jakarta-branch"),
        ("alerts/jakarta/more", "audit"),
        ("alerts/jakarta", "jakarta/bank"),
        ("alerts/jakarta", None),
        ("alerts/jakarta", ""),
        ("cdc/jakarta/bank", "wrong"),
        ("alerts/jakarta", "wrong"),
        ("", "audit"),
    ],
)
def test_everything_else_is_refused_in_the_same_words(address, identity):
    assert refused(address, identity) == "amqp:unauthorized-access"


def test_nobody_receives_where_the_file_names_nobody():
    assert refused("alerts/jakarta", "jakarta-branch", receivers={}) == "amqp:unauthorized-access"


def test_without_certificates_only_the_address_counts():
    assert refused("alerts/jakarta", None, demanded=False) is None
    assert refused("cdc/jakarta/bank", None, demanded=False) == "amqp:not-found"
