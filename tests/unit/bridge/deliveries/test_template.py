"""Addresses from keys and headers: nothing that a record says leaves the template's own beginning."""

import pytest

from bridge.deliveries.record import AddressTemplate, Record, Undeliverable
from headrace.configuration.sections import Delivery


def record(key=None, **headers):
    return Record("alerts", 0, 7, key, b"", tuple(headers.items()))


@pytest.mark.parametrize(
    ("template", "given", "address"),
    [
        ("alerts/{region}", record(b"jakarta"), "alerts/jakarta"),
        ("alerts/{region}", record(b"jakarta/branch-17"), "alerts/jakarta"),
        ("alerts/{key}", record(b"jakarta/branch-17"), "alerts/jakarta/branch-17"),
        ("alerts/{header.branch}/cards", record(b"x", branch=b"17"), "alerts/17/cards"),
        ("alerts/{region}/{header.branch}", record(b"jakarta", branch=b"17"), "alerts/jakarta/17"),
        ("alerts/all", record(), "alerts/all"),
    ],
)
def test_a_record_has_the_address_of_its_key_and_headers(template, given, address):
    address_template = AddressTemplate(template)
    assert address_template.address(given) == address
    assert address_template.matches(address)


@pytest.mark.parametrize("key", [None, b"", b"a b", b"a/../cdc#", b"x::queue", "\u00e9".encode(), b"a//b", b"y" * 300])
def test_a_key_that_is_no_address_is_undeliverable_and_is_not_shown(key):
    with pytest.raises(Undeliverable) as caught:
        AddressTemplate("alerts/{key}").address(record(key))
    assert key is None or not key or key.decode() not in str(caught.value)


def test_a_missing_header_is_named():
    with pytest.raises(Undeliverable, match="no header 'branch'"):
        AddressTemplate("alerts/{header.branch}").address(record(b"x"))


@pytest.mark.parametrize(
    "address", ["alerts/", "alerts", "alerts/jakarta/x", "cdc/jakarta/bank", "alerts/a b", "xalerts/jakarta"]
)
def test_other_addresses_are_none_of_the_template(address):
    assert not AddressTemplate("alerts/{region}").matches(address)


@pytest.mark.parametrize(
    "template",
    ["{region}", "/x", "alerts", "cdc/{region}", "alerts/{branch}", "alerts/{header.}", "alerts/a b", "a{key}/x"],
)
def test_a_template_that_is_none_or_takes_addresses_of_sources_is_refused(template):
    with pytest.raises(ValueError, match="address"):
        Delivery(address=template)
