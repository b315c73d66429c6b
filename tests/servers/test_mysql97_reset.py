"""A MySQL 9.7 whose log was reset, and one that speaks another language."""

import pytest

from edge.doctor.examine import examine
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive
from tests.edge.reset_log import reset_and_write_as_before
from tests.edge.under_test import refused
from tests.rules.waiting import eventually
from tests.servers.debian import Mysql97
from tests.servers.fix_mariadb import QUICK, with_table
from tests.servers.fix_stack import served


@pytest.fixture(scope="module")
def german(tmp_path_factory):
    """Yield a running server whose messages are in German."""
    yield from served(Mysql97(tmp_path_factory.mktemp("mysql"), settings=QUICK | {"lc-messages": "de_DE"}))


@pytest.fixture
def own(german):
    """Yield a fresh database of that server, with a table `t`."""
    yield from with_table(german)


@pytest.mark.parametrize("writes", [0, 5, 100])
def test_a_log_that_was_reset_is_noticed_even_when_it_has_grown_again(own, maria_edges, interconnect, writes):
    edge = maria_edges(own, interconnect.url)
    edge.init()
    with edge.running():
        own.execute("insert into t values (0, 'before'), (1, 'before')")
        arrive(interconnect, 2)
        eventually(lambda: edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"])
    own.execute("reset binary logs and gtids")
    for number in range(writes):
        own.execute(f"replace into t values ({number}, 'after')")

    error = refused(edge)
    assert ("reset, or" in error.message, "copy the tables again" in error.hint) == (True, True)
    assert len(interconnect.changes) == 2
    assert "wrong" in {each.level for each in examine(edge.config)}


@pytest.mark.parametrize("writes", [0, 2])
def test_a_log_that_was_reset_and_is_as_the_former_one_is_noticed(own, maria_edges, interconnect, writes):
    reset_and_write_as_before(
        maria_edges(own, interconnect.url), own, interconnect,
        reset="reset binary logs and gtids", status="show binary log status", writes=writes,
    )  # fmt: skip


def test_a_log_that_is_reset_while_it_is_read_stops_the_edge(own, maria_edges, interconnect):
    edge = maria_edges(own, interconnect.url)
    edge.init()
    with edge.running() as agent:
        own.execute("insert into t values (1, 'before')")
        arrive(interconnect, 1)
        own.execute("reset binary logs and gtids")
        own.execute("insert into t values (2, 'after')")
        error = agent.ended()
    assert isinstance(error, NeedsOperator)
    assert "it was reset" in error.message
    assert refused(edge).message == error.message


def test_two_edges_with_one_server_id_are_told_apart_in_any_language(own, maria_edges, interconnect, interconnects):
    edge = maria_edges(own, interconnect.url)
    edge.init()
    with edge.running() as agent:
        eventually(lambda: agent.figures.database_connected, saying="the edge reads the log")
        other = maria_edges(own, interconnects().url, server_id=edge.server_id, source="jakarta/other")
        other.init()
        error = refused(other, timeout_seconds=0.5)
        assert "is used by another replica or edge" in error.message
        own.execute("insert into t values (1, 'a')")
        arrive(interconnect, 1)
