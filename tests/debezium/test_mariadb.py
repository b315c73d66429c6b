"""The edge's records with `profile = "debezium"` next to those of Debezium's MariaDB connector, over one database."""

import pytest

from tests.debezium.binlog import (
    COUNTS,
    OPEN_TRANSACTIONS,
    ROWS,
    ROWS_COUNT,
    SETTINGS,
    TABLES,
    TRANSACTIONS,
    TYPES,
    WORK,
    ZERO_ROWS,
)
from tests.debezium.compare import by_reason, by_transaction, differences
from tests.debezium.intended import BINLOG_CONNECT, BINLOG_ENVELOPE, BINLOG_KINDS, BINLOG_VALUES, MARIADB_VALUES

#: What MySQL does not have.
MORE = "alter table types add u uuid"
MORE_ROW = (
    """insert into types (id, t8, n, must, u) values (6, 0, 0, '2026-01-31', '6ccd780c-baba-1026-9564-5b8c656024db')"""
)


@pytest.mark.timeout(600)
def test_changes_of_every_kind_are_written_as_debezium_writes_them(both, maria, maria_edges):
    result = both(maria, maria_edges, TABLES, WORK, COUNTS, {}, {})
    ours, theirs = map(by_transaction, result.pop("transaction"))
    # Here a statement that changes no row has no record.
    ended = {transaction for status, transaction, *_ in theirs if status == "END"}
    assert len(theirs) - 2 * len(ended) == OPEN_TRANSACTIONS["mariadb"]
    assert ours == [each for each in theirs if each[1] in ended]
    assert len(ours) == 2 * TRANSACTIONS

    compared = [by_reason(differences(*pair), BINLOG_ENVELOPE | BINLOG_KINDS) for pair in result.values()]
    assert dict(zip(result, (unintended for unintended, _ in compared), strict=True)) == {table: {} for table in COUNTS}
    # What is listed and occurs nowhere is not intended, it is out of date.
    assert set.intersection(*(absent for _, absent in compared)) == set()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ours", "theirs"), SETTINGS, ids=lambda given: " ".join(given.values()) or "default")
def test_values_of_every_type_are_written_as_debezium_writes_them(both, maria, maria_edges, ours, theirs):
    counts = {"types": ROWS_COUNT + 2}
    (pair,) = both(maria, maria_edges, [TYPES, MORE], [*ROWS, MORE_ROW, *ZERO_ROWS], counts, ours, theirs).values()
    intended = (
        BINLOG_ENVELOPE | BINLOG_VALUES | MARIADB_VALUES | (BINLOG_CONNECT if ours.get("time") == "connect" else {})
    )
    unintended, absent = by_reason(differences(*pair), intended)
    # What is listed and occurs nowhere is not intended, it is out of date; not all occurs in a former row.
    assert (unintended, [rule for rule in absent if ".before." not in rule]) == ({}, [])
