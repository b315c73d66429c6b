"""A publication, or its partitions, that are altered while the edge runs: tables whose changes are missing need a copy."""

import json

import pytest

from edge.postgres import failover
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually


def needs_copy(edge):
    """Return why tables need a copy, by name."""
    try:
        result = json.loads((edge.folder / "state" / "tables.json").read_text())["needs_copy"]
    except FileNotFoundError:
        return {}
    return {table: "; ".join(mark["reasons"]) for table, mark in result.items()}


@pytest.fixture
def listed(edges, database, interconnect):
    database.execute("create table t (id int primary key, note text); create table u (id int primary key)")
    edge = edges(database, interconnect.url, more='tables = ["public.t", "public.u"]')
    edge.init()
    return edge


def test_a_publication_that_publishes_less_or_a_table_that_left_it_is_found(listed, database, interconnect):
    """G10: changes were missing, and the edge was capturing."""
    with listed.running() as agent:
        database.execute("insert into t values (1); insert into u values (1)")
        arrive(interconnect, 2)
        database.execute(f"alter publication {database.name} drop table t; insert into t values (2)")
        database.execute(f"alter publication {database.name} add table t")
        eventually(lambda: "added to the publication" in needs_copy(listed).get("public.t", ""))
        assert "public.u" not in needs_copy(listed)
        assert "public.t needs a copy" in agent.figures.warned["copy of public.t"]
        database.execute(f"alter publication {database.name} set (publish = 'insert')")
        eventually(lambda: "other kinds of changes" in needs_copy(listed).get("public.u", ""))
        database.execute("insert into t values (3)")
        arrive(interconnect, 3)


def test_a_published_table_without_a_key_that_is_made_later_is_a_warning(edge, database, monkeypatch):
    """Q1: a publication for all tables has it at once, and its updates are refused."""
    monkeypatch.setattr(failover, "_HARM_SECONDS", 0.1)
    with edge.running() as agent:
        database.execute("create table sessions (id int)")
        eventually(lambda: "public.sessions" in agent.figures.warned.get("publication", ""))


def test_partitions_that_take_rows_along_under_their_root_are_found_and_new_ones_are_not(edges, database, interconnect):
    """G11: nothing of it is in the log; dropping old partitions is ordinary retention."""
    database.execute("create table t (id int, day int, primary key (id, day)) partition by list (day)")
    database.execute(
        "create table t_1 partition of t for values in (1); create table t_2 partition of t for values in (2)"
    )
    database.execute(f"create publication {database.name} for table t with (publish_via_partition_root = true)")
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running() as agent:
        database.execute("insert into t values (1, 1), (1, 2)")
        arrive(interconnect, 2)
        database.execute("create table t_3 partition of t for values in (3)")
        eventually(lambda: agent.figures.database_connections == 2, saying="the next session looks")
        assert needs_copy(edge) == {}
        database.execute("drop table t_1")
        eventually(lambda: "detached or dropped" in needs_copy(edge).get("public.t", ""))


def test_a_truncated_partition_under_its_root_is_found_and_a_rewritten_one_is_not(edges, database, interconnect):
    """G11: pgoutput sends nothing of it."""
    database.execute("create table t (id int, day int, primary key (id, day)) partition by list (day)")
    database.execute(
        "create table t_1 partition of t for values in (1); create table t_2 partition of t for values in (2)"
    )
    database.execute(f"create publication {database.name} for table t with (publish_via_partition_root = true)")
    database.execute("insert into t select n, n %% 2 + 1 from generate_series(1, 2000) n", [])
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running() as agent:
        eventually(lambda: agent.figures.database_connections == 1)
        database.execute("vacuum full t_1")
        eventually(lambda: agent.figures.database_connections == 2, saying="the next session looks")
        assert needs_copy(edge) == {}
        database.execute("truncate t_2; insert into t values (2001, 2)")
        eventually(lambda: needs_copy(edge).get("public.t") == "partitions were truncated")
        arrive(interconnect, 1)
        assert agent.figures.warned["copy of public.t"]
    # And what happened while no edge ran.
    edge.folder.joinpath("state", "tables.json").write_text(
        edge.folder.joinpath("state", "tables.json")
        .read_text()
        .replace('"public.t":{"reasons"', '"public.gone":{"reasons"')
    )
    database.execute("truncate t_1")
    with edge.running():
        eventually(lambda: needs_copy(edge).get("public.t") == "partitions were truncated")
