"""Statements in the log of a real MySQL 9.7, and what they do to captured tables and to others."""

import pytest

from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually


def in_need(agent):
    """Return the tables that need a copy, as the status reports them."""
    return {words.split()[0] for words in agent.figures.warnings if "needs a copy" in words}


@pytest.fixture
def other(mysql97):
    """Return the name of a database that is not captured."""
    name = f"{mysql97.name}_other"
    mysql97.execute(f"create database {name}")
    mysql97.execute(f"create table {name}.t (id int primary key, y year, j json)")
    yield name
    mysql97.execute(f"drop database if exists {name}")


def test_what_concerns_no_captured_table_neither_stops_the_source_nor_warns(
    mysql97_edge, mysql97, other, interconnect, caplog
):
    """M1: as RDS' heartbeat and pt-table-checksum log; N9, N10."""
    with mysql97_edge.running() as agent:
        mysql97.execute("set binlog_format = 'STATEMENT'")
        mysql97.execute("create table mysql.rds_heartbeat2 (id int primary key, value bigint)")
        mysql97.execute("insert into mysql.rds_heartbeat2 values (1, 17) on duplicate key update value = 17")
        mysql97.execute("drop table mysql.rds_heartbeat2")
        mysql97.execute(f"replace into {other}.t (id, y, j) values (1, 2026, '[1, 2]')")
        mysql97.execute("set binlog_format = 'ROW', binlog_row_value_options = 'PARTIAL_JSON'")
        mysql97.execute(f"update {other}.t set j = json_set(j, '$[0]', 3)")
        mysql97.execute(f"rename table {other}.t to {other}.u")
        mysql97.execute(f"drop database {other}")
        mysql97.execute("set binlog_row_value_options = ''")
        mysql97.execute("insert into t values (1, 'Ana')")
        arrive(interconnect, 1)

    assert [change["after"] for change in interconnect.changes] == [{"id": 1, "note": "Ana"}]
    assert not [words for words in agent.figures.warnings if "needs a copy" in words]
    assert "copy" not in caplog.text


def test_a_statement_that_changed_a_captured_table_concerns_that_table_alone(mysql97_edge, mysql97, interconnect):
    """M1: it stopped the source; and so did an update with a part of a JSON value."""
    mysql97.execute("create table d (id int primary key, j json)")
    with mysql97_edge.running() as agent:
        mysql97.execute("insert into d values (1, '[1, 2]')")
        mysql97.execute("set binlog_format = 'STATEMENT'")
        mysql97.execute("insert into t values (1, 'hidden')")
        mysql97.execute("set binlog_format = 'ROW', binlog_row_value_options = 'PARTIAL_JSON'")
        mysql97.execute("update d set j = json_set(j, '$[0]', 3)")
        mysql97.execute("set binlog_row_value_options = ''")
        mysql97.execute("insert into t values (2, 'Ana')")
        mysql97.execute("insert into d values (2, '[]')")
        arrive(interconnect, 3)

    assert in_need(agent) == {f"{mysql97.name}.d", f"{mysql97.name}.t"}
    ((statement,), (partial,)) = [value["rewritten"] for _, _, value in interconnect.records if value.get("rewritten")]
    assert "(INSERT INTO t)" in statement
    assert "PARTIAL_JSON" in partial
    assert "hidden" not in statement


def test_tables_whose_rows_moved_need_a_copy(mysql97_edge, mysql97, interconnect):
    """M7: a partition dropped, tables swapped, a table renamed away, a database dropped; N5: gh-ost's `_del`."""
    parts = "partition a values less than (10), partition b values less than (20)"
    mysql97.execute(f"create table p (id int primary key) partition by range (id) ({parts})")
    mysql97.execute("create table t_new like t")
    with mysql97_edge.running() as agent:
        mysql97.execute("drop table if exists _t_del")
        mysql97.execute("insert into p values (1), (11)")
        mysql97.execute("insert into t values (1, 'Ana')")
        mysql97.execute("insert into t_new values (2, 'Budi')")
        mysql97.execute("alter table p drop partition a")
        mysql97.execute("rename table t to t_old, t_new to t")
        mysql97.execute("insert into p values (12)")
        mysql97.execute("insert into t values (3, 'Citra')")
        arrive(interconnect, 7)
        needed = {f"{mysql97.name}.{table}" for table in ("p", "t", "t_old")}
        eventually(lambda: needed == in_need(agent), saying="the tables need a copy")
        mysql97.execute(f"drop database {mysql97.name}")
        arrive(interconnect, 10)

    changes = [(change["op"], change["source"]["table"]) for change in interconnect.changes]
    assert changes == [
        ("c", "p"), ("c", "p"), ("c", "t"), ("c", "t_new"), ("t", "t_new"), ("c", "p"), ("c", "t"), ("t", "p"), ("t", "t"),
        ("t", "t_new"),
    ]  # fmt: skip
    reasons = [value["rewritten"] for _, _, value in interconnect.records if value.get("rewritten")]
    assert reasons == [["a partition was dropped"], [f"table {mysql97.name}.t_new was renamed to it"]]


def test_rows_of_a_query_that_was_logged_as_a_statement_are_copied(mysql97_edge, mysql97, interconnect):
    """M8: `CREATE TABLE … SELECT` of a session with statements."""
    with mysql97_edge.running() as agent:
        mysql97.execute("insert into t values (1, 'Ana')")
        mysql97.execute("set binlog_format = 'STATEMENT'")
        mysql97.execute("create table made as select id from t")
        mysql97.execute("set binlog_format = 'ROW'")
        mysql97.execute("insert into made values (2)")
        arrive(interconnect, 2)

    assert in_need(agent) == {f"{mysql97.name}.made"}
