"""The signs of columns beside a YEAR, of which logs of MariaDB and of newer MySQL have one, ahead of those behind (N1)."""

import json
import struct

import pytest

from edge.mysql.table_map import year_has_sign
from tests.unit.edge.mysql import events as log
from tests.unit.edge.mysql.events import Column

OLD, UNKNOWN, NEW = "8.0.15-log", "8.0.25", "8.0.36-28"
CATALOG = {"id": False, "y": False, "a": True, "b": False}
HIGH = 2**32 - 1


class Moves:
    """A history of tables that notes which need a copy."""

    def __init__(self):
        self.reasons = []

    def move(self, names, reason, *_place, **_more):
        self.reasons += [(name, reason) for name in names]

    def __getattr__(self, _name):
        return lambda *_arguments, **_more: None


def columns(sign_of_year):
    """Return id int, y year, a int unsigned, b int, as a log has them."""
    return [
        Column("id", 3, unsigned=False), Column("y", 13, unsigned=sign_of_year), Column("a", 3, unsigned=True),
        Column("b", 3, unsigned=False),
    ]  # fmt: skip


def transaction(number, sign_of_year):
    row = b"\0" + struct.pack("<iBIi", number, 126, HIGH, -1)
    end = 1000 * number
    return [
        log.mysql_gtid(number, end - 300), log.query("BEGIN", end - 200), log.table_map(*columns(sign_of_year)),
        log.rows(30, 4, row), log.xid(end),
    ]  # fmt: skip


def decoded(*transactions, **options):
    """Return `a` and `b` of the rows of transactions, each of a server's version."""
    decoder, batcher = log.make_decoder(**options)
    log.feed(decoder, log.rotate())
    for number, (version, sign_of_year) in enumerate(transactions, 1):
        log.feed(decoder, log.format_description(version), *transaction(number, sign_of_year))
    values = [json.loads(value) for value in batcher.values if value is not None]
    return [(value["after"]["a"], value["after"]["b"]) for value in values if "op" in value]


@pytest.mark.parametrize(("version", "sign"), [(OLD, None), (NEW, True), (NEW, False), ("11.4.5-MariaDB-log", True)])
def test_n1_a_year_takes_no_sign_of_another_column(version, sign):
    """At MySQL 8.0.15 a column behind a YEAR had the sign of the one before it: 4294967295 became -1."""
    assert decoded((version, sign)) == [(HIGH, -1)]


def test_n1_after_an_upgrade_the_log_of_each_version_is_read_by_its_own_rule():
    same_bytes = {OLD: None, NEW: True}
    assert decoded((OLD, same_bytes[OLD]), (NEW, same_bytes[NEW]), (NEW, False), (OLD, None)) == [(HIGH, -1)] * 4


@pytest.mark.parametrize("sign", [None, True, False])
def test_n1_where_the_rule_is_not_known_the_catalog_has_the_signs(sign):
    assert decoded((UNKNOWN, sign), signs=CATALOG) == [(HIGH, -1)]


@pytest.mark.parametrize("catalog", [{}, CATALOG | {"a": False, "b": True}])
def test_n1_where_the_catalog_does_not_show_it_the_table_alone_needs_a_copy(catalog):
    history = Moves()
    assert decoded((UNKNOWN, None), signs=catalog, history=history) == []
    ((table, reason),) = history.reasons
    assert table == "bank.accounts"
    assert "which of its columns behind a YEAR have a sign" in reason


@pytest.mark.parametrize(
    ("version", "rule"),
    [
        ("8.0.20", False),
        ("8.0.21", None),
        ("8.0.28-log", None),
        ("8.0.29", True),
        ("9.7.0", True),
        ("", None),
        ("8.0", None),
    ],
)
def test_versions(version, rule):
    assert year_has_sign(version) is rule
