"""The edge between a real PostgreSQL and a real AMQP peer: what arrives, and what the slot has confirmed of it."""

import threading

from tests.edge.fix_edge import arrive, ids, positions
from tests.integration.edge.fill import insert
from tests.rules.waiting import eventually


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
    interconnect.hold(after=1)
    edge.start()
    eventually(edge.reading)
    writer = threading.Thread(target=insert, args=(database, 1, 10_000))
    writer.start()
    arrive(interconnect, 1)
    edge.kill()
    had = len(interconnect.changes)
    writer.join()
    interconnect.let_go()

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
        # Idle log passes, the server gets the edge's keepalives, and still nothing of it is confirmed.
        database.execute("select pg_log_standby_snapshot()")
        eventually(lambda: interconnect.withheld >= 3)
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
        # Log without changes ahead of them may be.
        first, *_ = [batch for _, batch in list(interconnect._holding) if len(batch)]
        assert edge.confirmed() <= first.first.commit
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
