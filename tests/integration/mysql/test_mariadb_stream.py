"""A MariaDB source, from its binlog to a far side: everything arrives once and in order, whatever stops on the way."""

import pytest

from edge.engine_registry import engine_of
from headrace.errors import NeedsOperator
from tests.edge.fix_edge import arrive, ids
from tests.rules.waiting import eventually
from tests.servers.fix_mariadb import MariadbDatabase


def test_insert_update_and_delete_arrive_with_their_rows(maria_edge, maria, interconnect):
    with maria_edge.running():
        maria.execute("insert into t values (1, 'Ana'), (2, null)")
        maria.execute("update t set note = 'Budi', id = 3 where id = 1")
        maria.execute("delete from t where id = 2")
        arrive(interconnect, 4)

    schema = next(value for _, _, value in interconnect.records if "tableChanges" in value)
    first, second, update, delete = interconnect.changes
    assert schema["tableChanges"][0]["table"]["primaryKeyColumnNames"] == ["id"]
    assert (first["before"], first["after"]) == (None, {"id": 1, "note": "Ana"})
    assert second["after"] == {"id": 2, "note": None}
    assert (update["op"], update["before"], update["after"]) == ("u", first["after"], {"id": 3, "note": "Budi"})
    assert (delete["op"], delete["before"], delete["after"]) == ("d", second["after"], None)
    assert [key for _, key, value in interconnect.records if value and "op" in value] == [
        {"id": 1}, {"id": 2}, {"id": 3}, {"id": 2},
    ]  # fmt: skip
    source = first["source"]
    assert (source["connector"], source["db"], source["table"], source["row"]) == ("mariadb", maria.name, "t", 0)
    assert (second["source"]["row"], second["transaction"]["last"]) == (1, True)
    assert first["transaction"]["id"] == source["gtid"] == second["source"]["gtid"] != update["source"]["gtid"]
    assert source["file"].startswith("binlog.")
    positions = [change["source"]["position"] for change in interconnect.changes]
    assert positions == sorted(set(positions))


def test_restart_goes_on_after_what_was_acknowledged(maria_edge, maria, interconnect):
    with maria_edge.running():
        maria.execute("insert into t values (1, 'a')")
        arrive(interconnect, 1)
    maria.execute("insert into t values (2, 'b')")
    maria.execute("flush binary logs")
    maria.execute("insert into t values (3, 'c')")

    with maria_edge.running():
        arrive(interconnect, 3)
        maria.execute("flush binary logs")
        maria.execute("insert into t values (4, 'd')")
        arrive(interconnect, 4)

    assert ids(interconnect) == [1, 2, 3, 4]


def test_edge_killed_within_a_large_transaction_loses_and_doubles_nothing(maria_edges, maria, interconnect):
    edge = maria_edges(maria, interconnect.url, kilobytes=4)
    edge.init()
    interconnect.hold(after=1001)
    edge.start()
    maria.execute("insert into t select seq, repeat(md5(seq), 4) from seq_1_to_20000")
    arrive(interconnect, 1000)
    edge.kill()
    seen = len(interconnect.changes)
    interconnect.let_go()

    edge.start()
    maria.execute("insert into t values (0, 'last')")
    eventually(lambda: ids(interconnect)[-1:] == [0], saying="the change after the large transaction arrives")

    assert seen < 20_000
    assert ids(interconnect) == [*range(1, 20_001), 0]
    assert edge.terminate() == 0


def test_rolled_back_changes_never_leave(maria_edge, maria, interconnect):
    with maria_edge.running():
        connection = maria.connect()
        connection.autocommit(False)
        with connection.cursor() as cursor:
            cursor.execute("insert into t values (1, 'gone')")
            connection.rollback()
            cursor.execute("insert into t values (2, 'kept')")
            cursor.execute("savepoint s")
            cursor.execute("insert into t values (3, 'gone')")
            cursor.execute("rollback to s")
            connection.commit()
        connection.close()
        maria.execute("insert into t values (4, 'kept')")
        arrive(interconnect, 2)

    assert ids(interconnect) == [2, 4]


def test_truncate_and_drop_empty_a_table_and_ddl_renews_its_schema(maria_edge, maria, interconnect):
    with maria_edge.running():
        maria.execute("insert into t values (1, 'a')")
        maria.execute("alter table t add column more decimal(10, 2) after id")
        maria.execute("insert into t values (2, 3.50, 'b')")
        maria.execute("truncate table t")
        maria.execute("drop table t")
        maria.execute("create table t (id bigint primary key)")
        maria.execute("insert into t values (7)")
        arrive(interconnect, 5)

    schemas = [
        value["tableChanges"][0]["table"]["columns"] for _, _, value in interconnect.records if "tableChanges" in value
    ]
    assert [[column["name"] for column in columns] for columns in schemas] == [
        ["id", "note"],
        ["id", "more", "note"],
        ["id"],
    ]
    assert [change["op"] for change in interconnect.changes] == ["c", "c", "t", "t", "c"]
    assert interconnect.changes[1]["after"] == {"id": 2, "more": "3.50", "note": "b"}


def test_compressed_events_are_read(own_maria, maria_edges, interconnect):
    own_maria.execute("set global log_bin_compress = 1")
    own_maria.disconnect()
    own_maria.execute("create table packed (id int primary key, note text, packed text compressed)")
    edge = maria_edges(own_maria, interconnect.url)
    edge.init()

    with edge.running():
        own_maria.execute(
            "insert into packed values (1, repeat('a', 3000), repeat('b', 3000)), (2, repeat('ü', 3000), 'c')"
        )
        own_maria.execute("update packed set note = repeat('d', 2000)")
        own_maria.execute("delete from packed where id = 1")
        own_maria.execute("truncate table packed /* " + "long " * 100 + "*/")
        arrive(interconnect, 6)

    first, second, *_, delete, _ = interconnect.changes
    assert first["after"] == {"id": 1, "note": "a" * 3000, "packed": "b" * 3000}
    assert second["after"]["note"] == "ü" * 3000
    assert delete["before"]["note"] == "d" * 2000
    assert interconnect.changes[-1]["op"] == "t"


def test_tables_that_are_not_chosen_stay(maria_edges, maria, mariadb, interconnect):
    other = MariadbDatabase(mariadb)
    other.execute("create table t (id int primary key)")
    maria.execute("create table u (id int primary key)")
    edge = maria_edges(maria, interconnect.url, more=f'tables = ["{maria.name}.u"]')
    edge.init()

    with edge.running():
        other.execute("insert into t values (1)")
        maria.execute("insert into t values (2, 'x')")
        maria.execute("insert into u values (3)")
        arrive(interconnect, 1)

    assert ids(interconnect) == [3]
    other.drop()


def test_idle_source_confirms_log_that_is_not_captured(maria_edge, maria, mariadb, interconnect):
    other = MariadbDatabase(mariadb)
    with maria_edge.running():
        other.execute("create table x (id int primary key)")
        other.execute("insert into x values (1)")
        end = maria.execute("select @@gtid_binlog_pos")[0][0]
        eventually(lambda: maria_edge.checkpoint["gtids"] == end, saying="the checkpoint reaches the end of the log")
    other.drop()


def test_stream_over_tls(maria_edges, own_maria, interconnect):
    edge = maria_edges(own_maria, interconnect.url, more='sslmode = "require"')
    edge.init()

    with edge.running():
        own_maria.execute("insert into t select seq, repeat('x', 200) from seq_1_to_20000")
        arrive(interconnect, 20_000)
        dumps = "select count(*) from information_schema.processlist where command = 'Binlog Dump'"
        # That of an edge before may not have ended yet.
        eventually(lambda: own_maria.execute(dumps) == [(1,)], saying="one connection carries the log")

    assert ids(interconnect) == list(range(1, 20_001))


def test_a_sequence_is_no_table(maria_edge, maria, interconnect):
    """The log describes a sequence as a table, of which each value that is drawn changes the only row (T8)."""
    maria.execute("create sequence numbers nocache")
    with maria_edge.running():
        maria.execute("insert into t values (nextval(numbers), 'a'), (nextval(numbers), 'b')")
        maria.execute("do setval(numbers, 100)")
        maria.execute("create sequence short")
        maria.execute("select nextval(short)")
        maria.execute("drop table short")
        maria.execute("insert into t values (nextval(numbers), 'c')")
        arrive(interconnect, 3)

    assert {change["source"]["table"] for change in interconnect.changes} == {"t"}
    assert ids(interconnect) == [1, 2, 101]
    with pytest.raises(NeedsOperator, match="numbers is a SEQUENCE, not a table"):
        engine_of(maria_edge.config).condition(f"{maria.name}.numbers", [{"id": 1}])
