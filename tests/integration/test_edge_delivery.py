"""The edge against a real PostgreSQL and a real AMQP peer: every change arrives once and in order, whatever the peer does."""

import threading

import pytest

from tests.fix_edge import arrive
from tests.waiting import eventually


def ids(interconnect):
    """The keys of inserted rows, in order of arrival."""
    return [change["after"]["id"] for change in interconnect.changes if change["op"] == "c"]


def positions(interconnect):
    return [change["source"]["position"] for change in interconnect.changes]


def insert(database, first, last):
    database.execute("insert into t select i, 'n' || i from generate_series(%s, %s) i", [first, last])


def commit_one_by_one(database, first, last):
    database.execute(
        f"do $$ begin for i in {first}..{last} loop insert into t values (i, 'n'); commit; end loop; end $$"
    )


def test_every_kind_of_change_arrives_in_commit_order(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1, 'a'), (2, 'b')")
        database.execute("update t set note = 'c' where id = 1")
        database.execute("delete from t where id = 2")
        arrive(interconnect, 4)

    assert [(change["op"], (change["after"] or change["before"])["id"]) for change in interconnect.changes] == [
        ("c", 1),
        ("c", 2),
        ("u", 1),
        ("d", 2),
    ]
    assert positions(interconnect) == sorted(set(positions(interconnect)))
    assert "tableChanges" in interconnect.records[0][2]


def test_message_tells_what_it_carries(edge, database, interconnect):
    with edge.running():
        insert(database, 1, 1)
        arrive(interconnect, 1)

    message = interconnect.messages[0]
    assert message.address == "cdc/jakarta/bank"
    assert message.durable
    assert message.content_type == "application/vnd.headrace.batch+msgpack"
    assert message.group_id == "jakarta/bank"
    assert message.properties["source"] == "jakarta/bank"
    assert message.creation_time > 0


# B12
def test_truncate_and_table_without_key_do_not_stall(edge, database, interconnect):
    database.execute("create table keyless (word text)")
    with edge.running():
        insert(database, 1, 3)
        database.execute("insert into keyless values ('x')")
        database.execute("truncate t, keyless")
        insert(database, 4, 4)
        arrive(interconnect, 7)
        commit = int(positions(interconnect)[-1].split("/")[1], 16)
        eventually(lambda: edge.confirmed() > commit, saying="the slot moves past the truncate")

    assert [change["op"] for change in interconnect.changes] == ["c"] * 4 + ["t"] * 2 + ["c"]


def test_restart_resumes_after_last_acknowledged_change(edge, database, interconnect):
    with edge.running():
        insert(database, 1, 5)
        arrive(interconnect, 5)
    insert(database, 6, 9)

    with edge.running():
        arrive(interconnect, 9)

    assert ids(interconnect) == list(range(1, 10))
    # Nothing was sent twice: what was acknowledged was confirmed before the first edge stopped.
    changes = [sum(b'"op"' in value for value in batch.values) for batch, _ in interconnect.arrived]
    assert sum(changes) == 9


# B1
def test_edge_killed_within_a_large_copy_loses_and_doubles_nothing(edge, database, interconnect):
    interconnect.credit = 2
    edge.start()
    eventually(edge.reading)
    writer = threading.Thread(target=insert, args=(database, 1, 10_000))
    writer.start()
    arrive(interconnect, 1)
    edge.kill()
    had = len(interconnect.changes)
    writer.join()

    edge.start()
    arrive(interconnect, 10_000)
    assert edge.terminate() == 0

    assert had < 10_000
    assert ids(interconnect) == list(range(1, 10_001))
    assert positions(interconnect) == sorted(set(positions(interconnect)))


# B2
def test_restart_between_transactions_repeats_and_skips_none(edge, database, interconnect):
    for number in range(1, 4):
        with edge.running():
            insert(database, number * 2, number * 2)
            insert(database, number * 2 + 1, number * 2 + 1)
            arrive(interconnect, number * 2)

    assert ids(interconnect) == [2, 3, 4, 5, 6, 7]


def test_slot_is_told_only_after_the_far_side_accepted(edge, database, interconnect):
    before = edge.confirmed()
    interconnect.hold()
    with edge.running() as agent:
        insert(database, 1, 3)
        eventually(lambda: agent.figures.sent >= 1)
        # Idle log passes, the server is told that the edge lives, and still nothing of it is confirmed.
        database.execute("select pg_log_standby_snapshot()")
        eventually(lambda: len(interconnect._holding) >= 1)
        reply = database.execute(
            "select reply_time from pg_stat_replication where application_name = 'headrace jakarta/bank'"
        )
        eventually(
            lambda: (
                database.execute(
                    "select reply_time from pg_stat_replication where application_name = 'headrace jakarta/bank'"
                )
                != reply
            ),
            saying="the server hears from the edge",
        )
        assert edge.confirmed() == before
        assert edge.checkpoint["acknowledged"].endswith("/0000000000000000/00000000")

        interconnect.let_go()
        eventually(lambda: edge.confirmed() > before)


def test_checkpoint_is_never_behind_the_slot(edge, database, interconnect):
    def numbers():
        # The slot is looked at first: the checkpoint may only move on in between.
        confirmed = edge.confirmed()
        high, low = edge.checkpoint["confirmed_lsn"].split("/")
        return confirmed, int(high, 16) << 32 | int(low, 16)

    with edge.running():
        for number in range(1, 60):
            insert(database, number, number)
            confirmed, noted = numbers()
            assert confirmed <= noted
        arrive(interconnect, 59)


@pytest.mark.parametrize("outcome", ["release", "modify", "settle"])
def test_batch_that_comes_back_is_sent_again_in_order(edge, database, interconnect, outcome):
    interconnect.hold()
    with edge.running() as agent:
        for number in range(1, 6):
            insert(database, number, number)
            eventually(lambda number=number: len(interconnect._holding) >= number)
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
    monkeypatch.setattr("edge.link._LASTING", 2)
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
        eventually(lambda: interconnect._holding)
        getattr(interconnect, way)()
        interconnect.held = False
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
    monkeypatch.setattr("edge.link._IDLE_SECONDS", 1.0)
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


def test_window_bounds_what_is_read_and_capture_goes_on_when_there_is_room(edges, database, interconnect):
    database.execute("create table t (id int primary key, note text)")
    edge = edges(database, interconnect.url, window_megabytes=1, kilobytes=16)
    edge.init()
    interconnect.hold()
    with edge.running() as agent:
        # Text that does not compress: about 4 MB.
        database.execute(
            "insert into t select i, (select string_agg(md5(i || '-' || g), '') from generate_series(1, 64) g)"
            " from generate_series(1, 2000) i"
        )
        eventually(lambda: agent.figures.sent >= 20)
        eventually(lambda: agent.figures.unacknowledged_bytes >= 1 << 20)
        assert agent.figures.captured < 1500

        interconnect.let_go()
        arrive(interconnect, 2000)

    assert ids(interconnect) == list(range(1, 2001))


def test_single_huge_row_travels_alone(edge, database, interconnect):
    with edge.running():
        for number in range(1, 6):
            database.execute(
                "insert into t select %s, string_agg(md5(random()::text), '') from generate_series(1, %s)",
                [number, 20_000 if number % 2 else 2],
            )
        arrive(interconnect, 5)

    assert ids(interconnect) == [1, 2, 3, 4, 5]
    assert max(len(message.body) for message in interconnect.messages) > 190_000


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
    eventually(lambda: interconnect._holding)
    edge.process.terminate()
    eventually(lambda: interconnect._holding)
    interconnect.let_go()

    assert edge.process.wait(20) == 0
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
