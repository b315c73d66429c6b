"""Ownership: a commit is allowed for the lease with which the position was read, and with metadata that the broker checks."""

import pytest

from bridge.source.registry import NotOwner, Ownership
from tests.unit.bridge.kafka_double import metadata


def test_metadata_is_given_for_leases_that_are_held():
    ownership = Ownership()
    leases = ownership.gain(["a/one", "a/two"], metadata(3))
    assert ownership.metadata_for(leases).generation == 3
    ownership.publish(metadata(4))
    assert ownership.metadata_for({"a/one": leases["a/one"]}).generation == 4


def test_a_source_that_was_lost_and_came_back_is_not_committed_under_its_former_lease_e1():
    ownership = Ownership()
    former = ownership.gain(["a/one", "a/two"], metadata())
    ownership.lose(["a/one"])
    with pytest.raises(NotOwner) as caught:
        ownership.metadata_for(former)
    assert caught.value.sources == {"a/one"}
    ownership.gain(["a/one"], metadata())
    with pytest.raises(NotOwner):
        ownership.metadata_for(former)


@pytest.mark.parametrize("useless", [None, metadata(-1), metadata()._replace(member="")])
def test_metadata_that_the_broker_would_not_check_are_never_used(useless):
    ownership = Ownership()
    leases = ownership.gain(["a/one"], metadata())
    ownership.publish(useless)
    with pytest.raises(NotOwner, match="not a member of the group"):
        ownership.metadata_for(leases)
