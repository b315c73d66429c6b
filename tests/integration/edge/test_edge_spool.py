"""An edge whose far side is away: what it reads becomes durable here, the slot moves on, and all arrives exactly once."""

import resource

import pytest

from edge.commands.lifecycle import Adoption
from edge.postgres.checkpoint import parse_lsn
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually

_SPOOL = """
[spool]
megabytes = {megabytes}
after_seconds = 0.2
"""
#: Does not shrink: so many bytes of it are about as many in the spool.
_ROWS = """
    insert into t
    select i, (select string_agg(md5((random() + i + n)::text), '') from generate_series(1, 30) n)
    from generate_series(%s::int, %s::int) i
"""


@pytest.fixture
def away(edges, database, interconnect, proxies):
    """Return an initialised edge with a spool, and the wire to its far side, which is cut."""
    wire = proxies("127.0.0.1", interconnect.port)
    wire.stop()
    database.execute("create table t (id int primary key, note text)")

    def make(megabytes=64):
        edge = edges(database, f"amqp://127.0.0.1:{wire.port}", window_megabytes=1, kilobytes=16)
        edge.path.write_text(edge.path.read_text() + _SPOOL.format(megabytes=megabytes))
        edge.init()
        return edge, wire

    return make


def write(database, first, last, step=200):
    for begin in range(first, last + 1, step):
        database.execute(_ROWS, [begin, min(last, begin + step - 1)])


def end_of_log(database):
    ((lsn,),) = database.execute("select pg_current_wal_lsn()::text")
    return parse_lsn(lsn)


def spool_file(edge):
    return edge.checkpoint_file.with_name("spool.sqlite")


def ids(interconnect):
    return [change["after"]["id"] for change in interconnect.changes]


def test_slot_moves_on_while_the_far_side_is_away_and_everything_arrives_once_whatever_is_killed(
    away, database, interconnect
):
    edge, wire = away()
    edge.start()
    # Killed while it spools.
    for round_ in range(3):
        write(database, round_ * 1000 + 1, round_ * 1000 + 1000)
        eventually(lambda: spool_file(edge).exists() or spool_file(edge).with_suffix(".sqlite-wal").exists())
        edge.kill()
        edge.start()
    write(database, 3001, 4000)
    end = end_of_log(database)
    eventually(lambda: edge.confirmed() >= end, saying="the slot has confirmed what the spool has")
    assert interconnect.changes == []
    assert edge.checkpoint["spooled"] > edge.checkpoint["acknowledged"]

    # Killed while it drains, with more coming in behind.
    interconnect.credit = 4
    wire.start()
    for round_ in range(4):
        arrive(interconnect, round_ * 700 + 1)
        edge.kill()
        edge.start()
    write(database, 4001, 5000)
    arrive(interconnect, 5000)

    assert ids(interconnect) == list(range(1, 5001))
    eventually(lambda: not spool_file(edge).exists(), saying="the empty spool is removed")
    assert edge.terminate() == 0
    assert edge.checkpoint["spooled"] == ""


def test_large_transaction_is_spooled_in_part_and_read_again_after_a_kill(away, database, interconnect):
    edge, wire = away()
    edge.start()
    write(database, 1, 10)
    eventually(lambda: spool_file(edge).exists())
    database.execute(_ROWS, [11, 6000])
    folder = edge.checkpoint_file.parent
    eventually(lambda: sum(path.stat().st_size for path in folder.glob("spool*")) > 1_000_000, every=0.005)
    edge.kill()
    edge.start()
    end = end_of_log(database)
    eventually(lambda: edge.confirmed() >= end)

    wire.start()
    arrive(interconnect, 6000)

    assert ids(interconnect) == list(range(1, 6001))


def test_full_spool_makes_capture_wait_and_the_slot_keeps_the_rest(away, database, interconnect):
    edge, wire = away(megabytes=1)
    edge.start()
    write(database, 1, 6000)
    log = edge.folder / "edge.log"
    eventually(lambda: "the spool is full" in log.read_text())
    assert spool_file(edge).stat().st_size <= 1 << 20
    assert edge.confirmed() < end_of_log(database)

    wire.start()
    arrive(interconnect, 6000)

    assert ids(interconnect) == list(range(1, 6001))
    end = end_of_log(database)
    eventually(lambda: edge.confirmed() >= end)
    assert edge.terminate() == 0


def test_full_disk_makes_capture_wait_and_it_goes_on_when_there_is_room(away, database, interconnect):
    edge, wire = away()
    edge.start()
    write(database, 1, 500)
    eventually(lambda: spool_file(edge).exists())
    # No file of this process may grow beyond this: what is written behind it fails as on a full disk.
    resource.prlimit(edge.process.pid, resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
    write(database, 501, 4000)
    log = edge.folder / "edge.log"
    eventually(lambda: "takes no more" in log.read_text(), saying="the edge says that the disk is full")
    assert edge.process.poll() is None
    assert edge.confirmed() < end_of_log(database)

    resource.prlimit(edge.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    end = end_of_log(database)
    eventually(lambda: edge.confirmed() >= end, saying="it goes on when there is room")
    assert interconnect.changes == []
    wire.start()
    arrive(interconnect, 4000)

    assert ids(interconnect) == list(range(1, 4001))


def test_lost_checkpoint_is_adopted_together_with_the_spool(away, database, interconnect):
    edge, wire = away()
    edge.start()
    write(database, 1, 200)
    end = end_of_log(database)
    eventually(lambda: edge.confirmed() >= end)
    edge.kill()
    start = Position.parse(edge.checkpoint["acknowledged"])
    edge.checkpoint_file.unlink()
    with pytest.raises(NeedsOperator, match="may not have been sent"):
        edge.init(Adoption(None))

    said = edge.init(Adoption(start))
    assert any("Kept the spool" in line for line in said)
    edge.start()
    wire.start()
    write(database, 201, 300)
    arrive(interconnect, 300)

    assert ids(interconnect) == list(range(1, 301))


def test_edge_whose_spool_is_lost_refuses_to_start_and_names_the_range(away, database):
    edge, _ = away()
    edge.start()
    write(database, 1, 200)
    end = end_of_log(database)
    eventually(lambda: edge.confirmed() >= end)
    edge.kill()
    promised = edge.checkpoint["spooled"]
    for path in spool_file(edge).parent.glob("spool.sqlite*"):
        path.unlink()

    done = edge.command("run")

    assert done.returncode == 3
    assert f"after {edge.checkpoint['acknowledged']} up to {promised}" in " ".join(done.stderr.split())
    assert "init --adopt --new-epoch" in " ".join(done.stderr.split())


def test_another_engine_spools_the_same_way(maria_edges, maria, interconnect, proxies):
    wire = proxies("127.0.0.1", interconnect.port)
    wire.stop()
    edge = maria_edges(
        maria, f"amqp://127.0.0.1:{wire.port}", window_megabytes=1, kilobytes=16, rest=_SPOOL.format(megabytes=64)
    )
    edge.init()
    insert = "insert into t select seq, sha2(rand(), 512) from seq_{}_to_{}"
    edge.start()
    for round_ in range(3):
        for part in range(5):
            first = round_ * 1000 + part * 200 + 1
            maria.execute(insert.format(first, first + 199))
        eventually(lambda: edge.checkpoint["spooled"] > edge.checkpoint["acknowledged"])
        edge.kill()
        edge.start()
    assert interconnect.changes == []

    interconnect.credit = 4
    wire.start()
    arrive(interconnect, 1000)
    edge.kill()
    edge.start()
    maria.execute(insert.format(3001, 3200))
    arrive(interconnect, 3200)

    assert ids(interconnect) == list(range(1, 3201))
    eventually(lambda: not spool_file(edge).exists(), saying="the empty spool is removed")
    assert edge.terminate() == 0
