"""What the far side and the wires do to an edge: every change arrives once and in order all the same."""

import pytest

from tests.edge.fix_edge import arrive, ids, positions
from tests.integration.edge.fill import commit_one_by_one, insert
from tests.rules.waiting import eventually


@pytest.mark.parametrize("outcome", ["release", "modify", "settle"])
def test_batch_that_comes_back_is_sent_again_in_order(edge, database, interconnect, outcome):
    interconnect.hold()
    with edge.running() as agent:
        for number in range(1, 6):
            insert(database, number, number)
            eventually(lambda number=number: interconnect.withheld > number)
        interconnect.faults.append(outcome)
        interconnect.let_go()
        arrive(interconnect, 5)
        assert agent.figures.returned >= 1

    assert ids(interconnect) == [1, 2, 3, 4, 5]


def test_far_side_that_releases_all_for_a_while_gets_all_in_order(edge, database, interconnect):
    interconnect.faults.extend(["release"] * 5)
    with edge.running():
        commit_one_by_one(database, 1, 200)
        arrive(interconnect, 200)

    assert ids(interconnect) == list(range(1, 201))


def test_gap_that_stays_is_warned_of_with_its_position(edge, database, interconnect, caplog, monkeypatch):
    monkeypatch.setattr("edge.delivery.link._LASTING", 2)
    with edge.running(stop_seconds=0):
        insert(database, 1, 1)
        arrive(interconnect, 1)
        had = interconnect.tail
        # The far side has lost its position: nothing that follows another one can be taken.
        interconnect.tail = None
        insert(database, 2, 2)
        eventually(lambda: f"the far side has returned what follows {had} 2 times in a row" in caplog.text)

    assert ids(interconnect) == [1]


def test_rejected_batch_ends_the_edge_with_what_the_far_side_said(edge, database, interconnect):
    interconnect.faults.append("reject")
    with edge.running() as agent:
        insert(database, 1, 1)
        error = agent.ended()

    assert error.exit_code == 3
    assert "headrace:stale-epoch an older epoch than the one in Kafka" in error.message
    assert edge.checkpoint["acknowledged"].endswith("/0000000000000000/00000000")


@pytest.mark.parametrize("way", ["drop", "detach"])
def test_lost_link_sends_again_what_has_no_outcome(edge, database, interconnect, way):
    interconnect.hold()
    with edge.running():
        commit_one_by_one(database, 1, 50)
        eventually(lambda: interconnect.withheld)
        getattr(interconnect, way)()
        interconnect.let_go()
        arrive(interconnect, 50)

    assert ids(interconnect) == list(range(1, 51))


def test_cut_and_refused_wire_to_the_interconnect_is_survived(edges, database, interconnect, proxies):
    database.execute("create table t (id int primary key, note text)")
    wire = proxies("127.0.0.1", interconnect.port)
    edge = edges(database, f"amqp://127.0.0.1:{wire.port}")
    edge.init()
    with edge.running():
        for number in range(4):
            commit_one_by_one(database, number * 100 + 1, number * 100 + 100)
            wire.cut() if number % 2 else wire.stop()
            wire.start()
        arrive(interconnect, 400)

    assert ids(interconnect) == list(range(1, 401))


def test_half_open_connection_to_the_interconnect_is_noticed(edges, database, interconnect, proxies, monkeypatch):
    monkeypatch.setattr("headrace.amqp.transport.IDLE_SECONDS", 1.0)
    database.execute("create table t (id int primary key, note text)")
    wire = proxies("127.0.0.1", interconnect.port)
    edge = edges(database, f"amqp://127.0.0.1:{wire.port}")
    edge.init()
    with edge.running() as agent:
        insert(database, 1, 1)
        arrive(interconnect, 1)
        wire.stall()
        insert(database, 2, 2)
        eventually(lambda: wire.accepted >= 2, saying="the edge connects again")
        wire.resume()
        arrive(interconnect, 2)
        assert agent.figures.interconnect_connections >= 2

    assert ids(interconnect) == [1, 2]


def test_cut_wire_to_the_database_reads_again_from_the_checkpoint(edges, database, interconnect, proxies):
    database.execute("create table t (id int primary key, note text)")
    wire = proxies("127.0.0.1", database.postgres.port)
    edge = edges(database, interconnect.url)
    edge.path.write_text(edge.path.read_text().replace(f"port = {database.postgres.port}", f"port = {wire.port}"))
    edge.init()
    with edge.running() as agent:
        for number in range(4):
            commit_one_by_one(database, number * 100 + 1, number * 100 + 100)
            arrive(interconnect, number * 100 + 1)
            wire.cut()
        arrive(interconnect, 400)
        assert agent.figures.database_connections >= 2

    assert ids(interconnect) == list(range(1, 401))
    assert positions(interconnect) == sorted(set(positions(interconnect)))
