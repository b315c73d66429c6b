"""The edge's records with `profile = "debezium"` next to those of Debezium's MySQL connector, over one database."""

import json

import pytest

from tests.debezium.binlog import COUNTS, ROWS, ROWS_COUNT, SETTINGS, TABLES, TRANSACTIONS, TYPES, WORK, ZERO_ROWS
from tests.debezium.compare import by_reason, by_transaction, differences
from tests.debezium.intended import BINLOG_CONNECT, BINLOG_ENVELOPE, BINLOG_KINDS, BINLOG_VALUES, MYSQL_VALUES

#: What MariaDB does not have.
MORE = "alter table types add ps point srid 4326"
MORE_ROWS = [
    "insert into types (id, t8, n, must, ps, j) values (6, 0, 0, '2026-01-31', st_geomfromtext('POINT(1 2)', 4326), 'null')",
    """insert into types (id, t8, n, must, j) values (7, 0, 0, '2026-01-31', json_object('date', cast('2026-01-31' as date),
       'time', cast('01:02:03.5' as time(6)), 'datetime', cast('2026-01-31 09:15:00.25' as datetime(6)),
       'decimal', cast(1.50 as decimal(5,2)), 'bytes', x'00ff', 'large', 18446744073709551615, 'double', 1e100, 'third', 1e0 / 3,
       'whole', 1e0, 'null', null, 'true', true, 'text', 'é "x" \\\\ /', 'inner', json_array(1, json_object('b', '[]'))))""",
]


@pytest.mark.timeout(600)
def test_changes_of_every_kind_are_written_as_debezium_writes_them(both, mysql, maria_edges):
    result = both(mysql, maria_edges, TABLES, WORK, COUNTS, {}, {})
    ours, theirs = map(by_transaction, result.pop("transaction"))
    assert ours == theirs
    assert len(ours) == 2 * TRANSACTIONS

    compared = [by_reason(differences(*pair), BINLOG_ENVELOPE | BINLOG_KINDS) for pair in result.values()]
    assert dict(zip(result, (unintended for unintended, _ in compared), strict=True)) == {table: {} for table in COUNTS}
    # What is listed and occurs nowhere is not intended, it is out of date.
    assert set.intersection(*(absent for _, absent in compared)) == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ours", "theirs"), SETTINGS, ids=lambda given: " ".join(given.values()) or "default")
def test_values_of_every_type_are_written_as_debezium_writes_them(both, mysql, maria_edges, ours, theirs):
    counts = {"types": ROWS_COUNT + len(MORE_ROWS) + 1}
    (pair,) = both(mysql, maria_edges, [TYPES, MORE], [*ROWS, *MORE_ROWS, *ZERO_ROWS], counts, ours, theirs).values()
    intended = (
        BINLOG_ENVELOPE | BINLOG_VALUES | MYSQL_VALUES | (BINLOG_CONNECT if ours.get("time") == "connect" else {})
    )
    unintended, absent = by_reason(differences(*map(with_parsed_json, pair)), intended)
    # What is listed and occurs nowhere is not intended, it is out of date; not all occurs in a former row.
    assert (unintended, [rule for rule in absent if ".before." not in rule]) == ({}, [])


def with_parsed_json(found):
    """Return records with the values of their JSON: Debezium's text has no spaces, and ours is what the server prints."""
    for each in found:
        for row in ("before", "after"):
            values = each.value and each.value[row]
            if values and values["j"] is not None:
                values["j"] = json.loads(values["j"])
    return found
