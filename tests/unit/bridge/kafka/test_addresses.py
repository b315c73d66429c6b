"""New clients find brokers that have moved, as long as the cluster reported where, and never another cluster's."""

import logging

import pytest

from bridge.kafka.addresses import addresses, other_addresses
from headrace.errors import NeedsOperator, NotConnected


@pytest.fixture
def book(request):
    made = addresses(f"{request.node.name}:1, b:1")
    made.note("c", [f"{request.node.name}:1", "b:1"])
    return made


def asked(book):
    return book.bootstrap.split(",")


def test_new_clients_ask_where_brokers_were_reported_last_and_what_the_file_names(book, caplog):
    first, second = asked(book)
    assert (first.endswith(":1"), second) == (True, "b:1")
    with caplog.at_level(logging.INFO):
        book.note("c", ["b:1", "a:2", "[fd00::1]:9092"])
    assert asked(book) == [first, second, "[fd00::1]:9092", "a:2"]
    assert "brokers are now at [fd00::1]:9092, a:2, b:1" in caplog.text
    # Where a broker answers that knows of none, that is no news.
    book.note("c", [])
    assert "a:2" in asked(book)
    book.note("c", ["a:3"])
    assert asked(book) == [first, second, "a:3"]


def test_what_no_broker_has_for_an_address_ends_no_client(book):
    before = asked(book)
    book.note("c", ["a,b:1", "\n:1", ":", "x" * 10, "a:123456", "z:1"])
    assert asked(book) == [*before, "z:1"]
    book.note("c", [f"host-{number}:1" for number in range(10_000)])
    assert len(asked(book)) == 2 + 50


def test_addresses_of_another_cluster_are_refused(book):
    before = asked(book)
    with pytest.raises(NeedsOperator, match="of the cluster d, and those before were of c"):
        book.note("d", ["other:1"])
    assert asked(book) == before


def test_those_of_a_changed_file_are_taken_where_they_prove_right(book):
    key, former = asked(book)[0] + ", b:1", asked(book)
    # when nobody answers there, or another cluster, then the former ones stay
    with pytest.raises(NotConnected), other_addresses(key, "n:1"):
        raise NotConnected("no answer")
    with pytest.raises(NeedsOperator), other_addresses(key, "n:1"):
        addresses("n:1").note("d", ["d:1"])
    assert asked(addresses(key)) == former
    # when they are right, connections of the former file go on with them alone, and with further ones later
    for named in ("n:1", "m:1", key):
        with other_addresses(key, named):
            addresses(named).note("c", ["c:1"])
        assert asked(addresses(key))[0] == asked(addresses(named))[0] == named.split(",")[0]
