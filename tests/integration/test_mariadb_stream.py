"""A MariaDB source, from its binlog to a far side: everything arrives once and in order, whatever stops on the way."""

import json
import os

import pytest

from edge.engine_registry import engine_of
from edge.initialise import Adoption
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.fix_edge import arrive, ids
from tests.fix_mariadb import MariadbDatabase
from tests.waiting import eventually


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


def prepared(maria, name, *rows):
    """Prepare an XA transaction, and leave it to others."""
    connection = maria.connect()
    with connection.cursor() as cursor:
        cursor.execute(f"xa start '{name}'")
        cursor.executemany("insert into t values (%s, %s)", rows)
        cursor.execute(f"xa end '{name}'")
        cursor.execute(f"xa prepare '{name}'")
    connection.close()


def test_prepared_transactions_arrive_when_they_commit_and_never_when_they_do_not(maria_edge, maria, interconnect):
    with maria_edge.running():
        prepared(maria, "a", (1, "a"), (2, "a"))
        prepared(maria, "b", (3, "b"))
        maria.execute("insert into t values (4, 'between')")
        maria.execute("xa rollback 'b'")
        maria.execute("xa commit 'a'")
        gtid = maria.execute("select @@gtid_binlog_pos")[0][0]
        maria.execute("xa start 'c'")
        maria.execute("insert into t values (5, 'c')")
        maria.execute("xa end 'c'")
        maria.execute("xa commit 'c' one phase")
        arrive(interconnect, 4)

    assert ids(interconnect) == [4, 1, 2, 5]
    assert [change["transaction"]["id"] for change in interconnect.changes[1:3]] == [gtid, gtid]
    assert [change["transaction"].get("last") for change in interconnect.changes] == [True, None, True, True]
    positions = [change["source"]["position"] for change in interconnect.changes]
    assert positions == sorted(set(positions))


def test_prepared_transactions_survive_edge_server_and_file(own_maria, own_mariadb, maria_edges, interconnect):
    edge = maria_edges(own_maria, interconnect.url)
    prepared(own_maria, "before", (1, "prepared before the source was made"))
    edge.init()
    edge.start()
    prepared(own_maria, "a", *((number, "x" * 200) for number in range(10, 20)))
    prepared(own_maria, "b", (2, "rolled back"))
    own_maria.execute("flush binary logs")
    own_maria.execute("insert into t values (3, 'between')")
    arrive(interconnect, 1)
    eventually(lambda: edge.checkpoint["file"] == "binlog.000002", saying="the checkpoint is behind what was prepared")
    edge.kill()
    own_maria.disconnect()
    own_mariadb.stop()
    own_mariadb.start()
    for decision in ("commit 'a'", "rollback 'b'", "commit 'before'"):
        own_maria.execute(f"xa {decision}")

    with edge.running():
        own_maria.execute("insert into t values (4, 'last')")
        arrive(interconnect, 13)

    assert ids(interconnect) == [3, *range(10, 20), 1, 4]


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


def test_position_shows_gtids_and_binlog(maria_edge, maria):
    done = maria_edge.command("position", "--json")
    shown = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert shown["confirmed_gtids"] == maria.execute("select @@gtid_binlog_pos")[0][0]
    # The server may have written more by itself, of no transaction.
    end = int(shown["binlog_end"].rpartition(":")[2])
    assert shown["retained_wal_bytes"] == end - shown["confirmed_offset"]


def test_init_again_changes_nothing_and_adopt_takes_a_position(maria_edge, maria, interconnect):
    with maria_edge.running():
        maria.execute("insert into t values (1, 'a'), (2, 'b')")
        arrive(interconnect, 2)
    before = maria_edge.checkpoint
    assert "Already made" in maria_edge.init()[0]
    assert maria_edge.checkpoint == before
    maria.execute("insert into t values (3, 'c')")

    maria_edge.checkpoint_file.unlink()
    maria_edge.init(Adoption(interconnect.tail))

    with maria_edge.running():
        arrive(interconnect, 3)
    assert ids(interconnect) == [1, 2, 3]


@pytest.mark.parametrize("where", [1, 5000])
def test_adopt_refuses_a_position_of_another_log(maria_edge, interconnect, where):
    maria_edge.checkpoint_file.unlink()
    with pytest.raises(NeedsOperator, match="no transaction begins"):
        maria_edge.init(
            Adoption(interconnect.tail._replace(commit=1 << 32 | where) if interconnect.tail else _at(where))
        )


def _at(offset):
    return Position(7, 1 << 32 | offset, 0)


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


def test_doctor_sees_as_much_with_the_documented_grants_as_an_administrator(maria_edges, own_maria, interconnect):
    """The catalog's tables of constraints are empty for a user that may only SELECT (T6)."""
    own_maria.execute(
        "create table child (id int primary key, t int, foreign key (t) references t (id) on delete cascade)"
    )
    own_maria.execute("create table plain (id int primary key, t int, foreign key (t) references t (id))")
    own_maria.execute("create table by_index (a int not null unique, b timestamp default now() on update now())")
    own_maria.execute("create table keyless (a int, unique (a))")
    own_maria.execute("create sequence numbers")
    own_maria.execute("create user captor identified by 'secret'")
    own_maria.execute("grant replication slave, replication master admin, binlog monitor, select on *.* to captor")
    edge = maria_edges(own_maria, interconnect.url)
    path = edge.folder / "edge.toml"
    path.write_text(path.read_text().replace('user = "root"', 'user = "captor"\npassword = "env:CAPTOR"'))

    found = json.loads(edge.command("doctor", "--json", env=os.environ | {"CAPTOR": "secret"}).stdout)

    tables = [finding["text"] for finding in found if finding["check"] == "tables"]
    assert tables == [
        "5 are captured",
        f"1 have no key: their records have none, and they cannot be copied: {own_maria.name}.keyless",
    ]
    (keys,) = [finding for finding in found if finding["check"] == "foreign keys"]
    assert keys["level"] == "warning"
    assert keys["text"].endswith(f": {own_maria.name}.child")
    own_maria.execute("drop user captor")


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


def test_doctor_finds_a_healthy_server_well_and_names_what_mends_an_ill_one(maria_edges, own_maria, interconnect):
    edge = maria_edges(own_maria, interconnect.url)
    edge.init()
    well = json.loads(edge.command("doctor", "--json").stdout)
    own_maria.execute("set global binlog_row_metadata = 'NO_LOG'")
    own_maria.execute("create table odd (a text character set swe7) engine = Aria")
    own_maria.execute(
        "create table numbered (a int, s bigint unsigned generated always as row start, e bigint unsigned generated always as "
        "row end, period for system_time (s, e)) with system versioning"
    )
    own_maria.execute(
        "create table child (id int primary key, t int, foreign key (t) references t (id) on delete cascade)"
    )
    done = edge.command("doctor", "--json")
    ill = json.loads(done.stdout)

    about = {"connection", "TLS", "binlog_row_metadata", "server_id", "checkpoint", "tables", "foreign keys"}
    assert {finding["level"] for finding in well if finding["check"] in about} == {"ok"}
    said = {(finding["check"], finding["level"]): finding for finding in ill}
    assert said["binlog_row_metadata", "wrong"]["fix"] == "set global binlog_row_metadata = 'FULL'"
    assert "convert to character set utf8mb4" in said["character set", "wrong"]["fix"]
    assert f": {own_maria.name}.numbered" in said["versions", "wrong"]["text"]
    assert f"{own_maria.name}.odd" in said["tables", "warning"]["text"]
    assert f": {own_maria.name}.child" in said["foreign keys", "warning"]["text"]
    assert done.returncode != 0
