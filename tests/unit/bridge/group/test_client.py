"""The metadata of the consumer, as librdkafka writes them down."""

import pytest

from bridge.group.client import parse


def test_group_generation_and_member_are_read():
    found = parse(b"CGMDv2:\x07\x00\x00\x00bridges\x00one-4ece\x00\x00one\x00")
    assert (found.group, found.generation, found.member, found.is_usable) == ("bridges", 7, "one-4ece", True)


@pytest.mark.parametrize(
    "opaque", [b"CGMDv2:\xff\xff\xff\xffg\x00\x00\x00one\x00", b"CGMDv2:\x01\x00\x00\x00g\x00\x00\x00one\x00"]
)
def test_what_a_client_without_a_group_says_is_of_no_use(opaque):
    assert not parse(opaque).is_usable


@pytest.mark.parametrize("opaque", [b"", b"CGMDv2:", b"CGMDv3:\x01\x00\x00\x00g\x00m\x00"])
def test_a_form_that_is_not_known_is_none(opaque):
    assert parse(opaque) is None
