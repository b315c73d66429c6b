"""Deliveries while they arrive: read part by part, whole in the end, and never above what the link may have."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.amqp.links import Arriving
from headrace.errors import CorruptInput


class Link:
    """A link with parts to read."""

    def __init__(self, credit=1):
        self.credit, self.data = credit, b""

    def recv(self, _limit):
        data, self.data = self.data, b""
        return data or None

    def advance(self):
        self.credit -= 1


class Delivery:
    def __init__(self, *, partial):
        self.partial, self.pending = partial, 1


@given(st.lists(st.binary(max_size=5), min_size=1, max_size=200))
def test_what_comes_in_parts_is_read_whole(parts):
    link, arriving = Link(), Arriving(1000)
    for number, data in enumerate(parts):
        link.data = data
        is_last = number == len(parts) - 1
        whole = arriving.read(link, Delivery(partial=not is_last))
        assert whole == (b"".join(parts) if is_last else None)
    assert arriving.size == 0


@pytest.mark.parametrize("partial", [True, False])
def test_a_delivery_above_the_limit_is_an_error_and_nothing_of_it_is_kept(partial):
    """S7."""
    link, arriving = Link(), Arriving(10)
    link.data = bytes(6)
    assert arriving.read(link, Delivery(partial=True)) is None
    link.data = bytes(5)
    with pytest.raises(CorruptInput, match="larger than 10 bytes"):
        arriving.read(link, Delivery(partial=partial))
    assert arriving.size == 0


def test_a_delivery_without_credit_is_an_error():
    """S7: Proton takes what comes, whatever credit was given."""
    link, arriving = Link(credit=0), Arriving(10)
    link.data = b"x"
    with pytest.raises(CorruptInput, match="credit"):
        arriving.read(link, Delivery(partial=False))
