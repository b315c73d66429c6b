"""Addresses: which links the bridge takes, and what it tells the others."""

from types import SimpleNamespace

import pytest

from bridge.amqp.authorization import Identities, refusal

SOURCES = {"jakarta/bank", "london/bank"}
REFUSED = {"london/bank": ("amqp:resource-locked", "london/bank is served by bridge two")}
ANYBODY = Identities({}, demanded=False)


def a_link(address="cdc/jakarta/bank", *, is_sender=False, mode=2):
    return SimpleNamespace(
        is_sender=is_sender, remote_target=SimpleNamespace(address=address), remote_snd_settle_mode=mode
    )


def test_a_source_of_ours_is_taken():
    assert refusal(a_link(), SOURCES, REFUSED, None, ANYBODY) is None


def test_a_certificate_opens_its_own_source_and_no_other():
    identities = Identities({}, demanded=True)

    assert refusal(a_link(), SOURCES, REFUSED, "jakarta/bank", identities) is None
    for identity in ("london/bank", "paris/bank", None):
        condition, says = refusal(a_link(), SOURCES, REFUSED, identity, identities)
        assert condition == "amqp:unauthorized-access"
        assert repr(identity) in says
        assert "'jakarta/bank'" in says


def test_who_may_not_send_for_a_source_does_not_learn_whether_it_is_there():
    identities = Identities({}, demanded=True)

    there, absent = (
        refusal(a_link(f"cdc/{source}"), SOURCES, REFUSED, "london/bank", identities)
        for source in ("jakarta/bank", "x/y")
    )

    assert there[0] == absent[0] == "amqp:unauthorized-access"


@pytest.mark.parametrize(
    ("link", "condition", "says"),
    [
        (a_link(is_sender=True), "amqp:not-allowed", "only receives"),
        (a_link(None), "amqp:not-found", "cdc/REGION/NAME"),
        (a_link("jakarta/bank"), "amqp:not-found", "cdc/REGION/NAME"),
        (a_link("cdc/paris/bank"), "amqp:not-found", "'paris/bank' is in no stream"),
        (a_link("cdc/london/bank"), "amqp:resource-locked", "served by bridge two"),
        (a_link(mode=1), "amqp:not-allowed", "unsettled"),
    ],
)
def test_everything_else_is_refused_with_the_reason(link, condition, says):
    refused = refusal(link, SOURCES, REFUSED, None, ANYBODY)
    assert refused[0] == condition
    assert says in refused[1]
