"""An edge with nothing to send, and an edge that is asked to end."""

from tests.edge.fix_edge import arrive, ids
from tests.integration.edge.fill import insert
from tests.rules.waiting import eventually


def test_idle_database_in_a_busy_cluster_lets_its_slot_move_on(edge, database, interconnect):
    with edge.running():
        before = edge.confirmed()
        # Log of another database of the cluster.
        database.postgres.psql("create table busy as select i from generate_series(1, 10000) i; drop table busy")
        eventually(lambda: edge.confirmed() > before + 100_000, saying="the slot moves on")

    assert interconnect.changes == []
    assert edge.checkpoint["acknowledged"].endswith("/0000000000000000/00000000")


def test_idle_source_sends_empty_batches_with_its_figures(edge, database, interconnect):
    with edge.running():
        insert(database, 1, 1)
        eventually(lambda: [batch for batch, _ in interconnect.arrived if not len(batch) and not batch.starts_epoch])

    (idle, *_) = [batch for batch, _ in interconnect.arrived if not len(batch) and not batch.starts_epoch]
    assert idle.figures["captured"] == 2
    assert idle.figures["confirmed_lsn"] > 0
    assert idle.figures["clock_ms"] > 1_700_000_000_000
    assert idle.follows == idle.last == interconnect.tail


def test_sigterm_waits_for_acknowledgements_and_confirms_them(edge, database, interconnect):
    interconnect.hold()
    edge.start()
    eventually(edge.reading)
    insert(database, 1, 5)
    eventually(lambda: interconnect.withheld >= 5)
    edge.process.terminate()
    interconnect.let_go()

    assert edge.process.wait(60) == 0
    commit = int(interconnect.changes[-1]["source"]["position"].split("/")[1], 16)
    assert edge.confirmed() > commit
    assert edge.checkpoint["acknowledged"] == interconnect.changes[-1]["source"]["position"]


def test_sigterm_with_an_unreachable_interconnect_stops_and_loses_nothing(edges, database, interconnect, proxies):
    database.execute("create table t (id int primary key, note text)")
    wire = proxies("127.0.0.1", interconnect.port)
    edge = edges(database, f"amqp://127.0.0.1:{wire.port}")
    edge.init()
    wire.stop()
    with edge.running(stop_seconds=0.5) as agent:
        insert(database, 1, 5)
        eventually(lambda: agent.figures.captured >= 5)
    wire.start()

    with edge.running():
        arrive(interconnect, 5)

    assert ids(interconnect) == [1, 2, 3, 4, 5]
