"""Forms of `[records]` that would give two rows one key, or that have no value for what a column holds."""

import pytest

from edge.postgres.values import OIDS
from headrace.errors import ConfigurationError, NeedsOperator
from tests.unit.edge.postgres.messages import INT4, NUMERIC, Column, Log, insert, relation

TIMESTAMP, TIME, VARBIT = OIDS["timestamp"], OIDS["time"], OIDS["varbit"]


def table(type_oid, modifier=-1, *, in_key=True):
    return relation(Column("id", INT4, key=True), Column("at", type_oid, modifier=modifier, key=in_key))


@pytest.mark.parametrize(
    ("records", "type_oid", "modifier", "setting"),
    [
        ({"time": "connect"}, TIMESTAMP, -1, 'time = "connect"'),
        ({"time": "connect"}, TIME, 6, 'time = "connect"'),
        ({"time": "isostring"}, TIME, -1, 'time = "isostring"'),
        ({"decimal": "double"}, NUMERIC, -1, 'decimal = "double"'),
        ({"profile": "debezium"}, OIDS["interval"], -1, 'interval = "numeric"'),
        ({"profile": "debezium"}, OIDS["timetz"], -1, 'types = "debezium"'),
        ({"profile": "debezium"}, VARBIT, -1, 'types = "debezium"'),
        ({"profile": "debezium", "time": "connect"}, OIDS["_timestamp"], -1, 'time = "connect"'),
    ],
)
def test_a_form_that_rounds_is_refused_for_a_key(records, type_oid, modifier, setting):
    log = Log(**records)
    with pytest.raises(ConfigurationError, match=r"accounts\.at, a column of the key") as raised:
        log.transaction(table(type_oid, modifier))
    assert setting in raised.value.message
    # and nowhere else
    Log(**records).transaction(table(type_oid, modifier, in_key=False))


@pytest.mark.parametrize(
    ("records", "type_oid", "modifier", "text"),
    [
        ({"time": "connect"}, TIMESTAMP, 3, "2026-01-31 09:15:00.25"),
        ({"time": "connect"}, OIDS["date"], -1, "2026-01-31"),
        ({"profile": "debezium"}, TIMESTAMP, -1, "2026-01-31 09:15:00.25"),
        ({"profile": "debezium"}, NUMERIC, -1, "1.50"),
        ({"profile": "debezium"}, OIDS["money"], -1, "$1.50"),
    ],
)
def test_a_form_that_keeps_values_apart_is_none_the_less_one_for_keys(records, type_oid, modifier, text):
    log = Log(**records)
    log.transaction(table(type_oid, modifier), insert(1, text))
    (record,) = log.changes()
    assert record.key["at"] == record.value["after"]["at"] is not None


def test_a_number_that_is_none_stops_the_source_in_a_key_alone():
    log = Log(profile="debezium")
    log.transaction(table(NUMERIC, in_key=False), insert(1, "NaN"))
    assert [record.value["after"] for record in log.changes()] == [{"id": 1, "at": None}]
    with pytest.raises(NeedsOperator, match=r"accounts\.at, a column of the key"):
        Log(profile="debezium").transaction(table(NUMERIC), insert(1, "NaN"))


def test_nanoseconds_that_do_not_fit_into_64_bits_stop_the_source():
    log = Log(time="nanoseconds")
    log.transaction(table(TIMESTAMP), insert(1, "2262-04-11 23:47:16.854775"), insert(2, "infinity"))
    assert [record.value["after"]["at"] for record in log.changes()] == [2**63 - 1 - 807, 2**63 - 1]
    for text in ("9999-12-31 00:00:00", "1677-09-21 00:12:43", "0001-01-01 00:00:00 BC"):
        with pytest.raises(NeedsOperator, match=r"accounts\.at has a time before 1678 or after 2261") as raised:
            Log(time="nanoseconds").transaction(table(TIMESTAMP), insert(1, text))
        assert text not in raised.value.message + raised.value.hint
