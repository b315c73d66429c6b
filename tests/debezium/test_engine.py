"""A source that Debezium's engine reads, behind the edge: what is sent, exactly once, beside our own edge of its database."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.debezium.child import EngineProcess, class_path
from headrace.errors import NeedsOperator, NotConnected
from tests.amqp.fix_interconnect import Interconnect
from tests.debezium.conftest import ENVIRONMENT, OURS, THEIRS
from tests.edge.under_test import EdgeUnderTest, made_in, refused
from tests.kafka.connect import java
from tests.rules.waiting import eventually

SOURCE = """
[source.debezium]
connector = "postgres"
java = "{java}"
memory_megabytes = 256

[source.debezium.properties]
"database.hostname" = "127.0.0.1"
"database.port" = {port}
"database.user" = "postgres"
"database.dbname" = "{name}"
"slot.name" = "{name}_dbz"
"publication.name" = "{name}_dbz"

[source.debezium.secrets]
"database.password" = "env:NO_PASSWORD"
"""
_TABLES = """
create table t (id int primary key, note text, n numeric(10, 2), big numeric, at timestamptz, local timestamp(3), day date,
    clock time, data bytea, doc jsonb, u uuid, flag bool, f float8, short varchar(20), list int[], words text[], bits bit(3));
create table plain (x int, y text);
alter table plain replica identity full;
create table whole (id int primary key, note text not null);
alter table whole replica identity full;
create table strict (id int primary key, day date not null, at timestamptz not null, local timestamp not null,
    clock time not null, n numeric(10, 2) not null, big bigint not null, doc jsonb not null, u uuid not null, flag bool not null,
    data bytea not null);
create extension if not exists hstore;
create table wide (id int primary key, small int, t text, b bytea, j jsonb, n numeric, ints int[], longs bigint[],
    uuids uuid[], words text[], h hstore);
"""
#: Of the columns that the log does not carry when another one changes, all are stored apart and none is compressed.
_WIDE = "t b j ints longs uuids words h"
_APART = "".join(f"alter table wide alter {name} set storage external;" for name in _WIDE.split())
#: What Debezium makes two records of, or writes of another moment.
_OWN = ("position", "lsn", "version", "ts_ms", "txId")


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., EdgeUnderTest]]:
    """Return what makes edges whose sources Debezium reads."""
    monkeypatch.setenv("NO_PASSWORD", "none")

    def edge(folder: Path, database: Any, url: str, **changes: Any) -> EdgeUnderTest:
        text = SOURCE.format(java=java(ENVIRONMENT), port=database.postgres.port, name=database.name)
        return EdgeUnderTest(folder, text, url, **changes)

    (tmp_path / "engines").mkdir()
    with made_in(tmp_path / "engines", edge) as make:
        yield make


def system(database: Any) -> str:
    """Return the server's system identifier."""
    ((identifier,),) = database.execute("select system_identifier from pg_control_system()")
    return str(identifier)


def rows(interconnect: Interconnect) -> list[tuple[Any, Any]]:
    """Return the changes without what differs by design: what is left is the same of both edges."""
    found = []
    for _, key, value in list(interconnect.records):
        # The values of some columns of `wide` have other forms; what matters is which of them the log does not carry.
        if value is None or "op" not in value or (value["source"]["table"] == "wide" and value["op"] == "c"):
            continue
        source = {name: each for name, each in value["source"].items() if name not in _OWN}
        order = {name: each for name, each in value["transaction"].items() if name != "id"}
        kept = {name: each for name, each in value.items() if name not in {"source", "transaction", "ts_ms"}}
        found.append((key, kept | {"source": source, "transaction": order}))
    return found


def schemas(interconnect: Interconnect) -> dict[str, Any]:
    """Return the newest schema record's table, by its id."""
    changes = [
        value["tableChanges"][0]
        for _, _, value in list(interconnect.records)
        if value is not None and "tableChanges" in value
    ]
    return {change["id"]: change["table"] for change in changes}


def run_with_a_kill_in_the_copy(engine: EdgeUnderTest, interconnect: Interconnect, changes: int) -> None:
    """Run an edge until so many changes arrived; it is killed when a part of the copy is there."""
    interconnect.hold(after=3000)
    engine.start()
    try:
        eventually(lambda: interconnect.held, 120, saying="a part of the copy arrives")
        engine.kill()
        interconnect.let_go()
        engine.start()
        eventually(lambda: len(interconnect.changes) >= changes, 240, saying="the copy and the change arrive")
    finally:
        engine.kill()


def engine_pid(edge: EdgeUnderTest) -> int:
    """Return the process id of an edge's engine."""
    assert edge.process is not None
    (pid,) = Path(f"/proc/{edge.process.pid}/task/{edge.process.pid}/children").read_text().split()
    return int(pid)


WORK = (
    """
    insert into t values (1, 'a', 1.5, 1e10, '2026-01-31 09:15:00.25Z', '2026-01-31 09:15:00.250', '2026-01-31', '09:15',
        '\\x00ff', '{"a": [1, "x"]}', '0c2be563-b164-42db-849c-344c7d2cb014', true, 1.5, 'v', '{1,NULL,3}',
        '{a,"b c",NULL,""}', B'101')
    """,
    "insert into t (id) values (2)",
    "update t set note = 'b', at = '2026-02-01 00:00:00Z' where id = 1",
    "delete from t where id = 2",
    "insert into plain values (1, 'x'), (1, 'x')",
    "update plain set y = 'z' where x = 1",
    "delete from plain",
    "insert into whole values (1, 'one')",
    "update whole set note = 'two'",
    "delete from whole",
    """
    insert into strict values (1, '2026-01-31', '2026-01-31 09:15:00Z', '2026-01-31 09:15:00', '09:15', 1.5, 5, '{"a": 1}',
        '0c2be563-b164-42db-849c-344c7d2cb014', true, '\\x01')
    """,
    _APART,
    """
    insert into wide select 1, 1, repeat('t', 9000), decode(repeat('ab', 9000), 'hex'), to_jsonb(repeat('j', 9000)), 1,
        array_agg(g), array_agg(g), array_agg(gen_random_uuid()), array_agg('w' || g),
        hstore('k', repeat('h', 9000)) from generate_series(1, 9000) g
    """,
    "update wide set small = 2",
    "update strict set id = 2 where id = 3",
    "delete from strict",
    "insert into t (id, note) select g, repeat('n', g % 50) from generate_series(100, 3500) g",
    "truncate t",
    "select pg_logical_emit_message(true, 'p', 'c'), pg_logical_emit_message(false, 'p', 'c')",
    "alter table t add extra text default 'e'",
    "insert into t (id, extra) values (4999, null)",
    "insert into t (id, extra) values (5000, 'x')",
)


@pytest.mark.timeout(600)
def test_debezium_behind_the_edge_sends_what_our_own_edge_sends(database, edges, engines, interconnects):
    ours, theirs = interconnects(), interconnects()
    database.execute(_TABLES)
    own, engine = edges(database, ours.url), engines(database, theirs.url)
    own.init()
    engine.init()
    with own.running(), engine.running():
        for statement in WORK:
            database.execute(statement)
        wanted = lambda: [key for key, value in rows(ours) if value["op"] == "c" and key == {"id": 5000}]  # noqa: E731
        eventually(wanted, 120, saying="our own edge's last change arrives")
        eventually(lambda: len(rows(theirs)) >= len(rows(ours)), 240, saying="Debezium's arrive")
    assert rows(theirs) == rows(ours)
    assert schemas(theirs) == schemas(ours)
    positions = [position for position, _, value in theirs.records if "op" in value]
    assert positions == sorted(set(positions))


@pytest.mark.timeout(900)
def test_what_debezium_reads_is_proved_equal_and_has_the_rows_of_our_own_edge(database, edges, engines, lake):
    address = f'host = "127.0.0.1"\nport = {database.postgres.port}\ndatabase = "{database.name}"\nuser = "postgres"'
    silver, url = lake("postgresql", address)
    database.execute(f"{_TABLES}; create table written (id int primary key, n int)")
    own, engine = edges(database, url, source=OURS), engines(database, url, source=THEIRS)
    own.init()
    engine.init()
    with own.running(), engine.running():
        for statement in WORK:
            database.execute(statement)
        database.execute("insert into plain values (1, 'x'), (1, 'x'); insert into whole values (2, 'two')")
        # Of another form.
        database.execute("update wide set h = null")
        silver.check(database, {f"public.{name}" for name in ("t", "plain", "whole", "strict", "wide", "written")})


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_engine_and_edge_are_killed(database, engines, interconnect):
    database.execute("create table t (id int primary key, note text)")
    engine = engines(database, interconnect.url)
    engine.init()
    engine.start()
    try:
        for number in range(6):
            first = number * 1000
            for at in range(first, first + 1000, 50):
                database.execute("insert into t select g, 'n' from generate_series(%s, %s) g", [at, at + 49])
            if number:
                eventually(lambda first=first: len(interconnect.changes) > first - 900, 120, saying="changes arrive")
            if number % 2:
                engine.kill()
                engine.start()
            else:
                os.kill(eventually(lambda: engine_pid(engine), 60), signal.SIGKILL)
        eventually(lambda: len(interconnect.changes) >= 6000, 240, saying="all changes arrive")
        database.execute("insert into t values (-1, 'last')")
        eventually(lambda: len(interconnect.changes) >= 6001, 120, saying="the last change arrives")
    finally:
        engine.kill()
    assert [change["after"]["id"] for change in interconnect.changes] == [*range(6000), -1]
    offset = json.loads(json.loads(engine.checkpoint_file.read_text())["offset"][1])
    assert offset["lsn"] > 0


@pytest.mark.timeout(600)
def test_rows_that_are_there_before_are_copied_once_whatever_is_killed(database, engines, interconnect):
    database.execute("create table t (id int primary key, note text)")
    database.execute("insert into t select g, 'n' from generate_series(1, 20000) g")
    engine = engines(database, interconnect.url, rest='[snapshot]\nmode = "initial"')
    engine.init()
    database.execute("delete from t where id = 20000")
    run_with_a_kill_in_the_copy(engine, interconnect, 20_001)
    assert [change["after"]["id"] for change in interconnect.changes if change["op"] == "r"] == [*range(1, 20001)]
    assert [change["before"] for change in interconnect.changes if change["op"] != "r"] == [{"id": 20000}]


@pytest.mark.timeout(300)
def test_a_slot_that_is_gone_ends_in_an_error_and_not_in_a_gap(database, engines, interconnect):
    database.execute("create table t (id int primary key)")
    engine = engines(database, interconnect.url)
    engine.init()
    name = f"{database.name}_dbz"
    eventually(lambda: database.execute("select pg_drop_replication_slot(%s)", [name]) or True, 60)
    database.execute("insert into t values (1)")
    assert "no longer has the log" in refused(engine).message
    assert database.execute("select count(*) from pg_replication_slots where slot_name = %s", [name]) == [(0,)]
    assert interconnect.changes == []


@pytest.mark.timeout(300)
def test_another_server_ends_the_edge_whatever_slot_it_has(database, engines, interconnect):
    engine = engines(database, interconnect.url)
    engine.init()
    other = engine.checkpoint | {"system_identifier": "7000000000000000001"}
    engine.checkpoint_file.write_text(json.dumps(other))
    assert "the server is another one" in refused(engine).message


@pytest.mark.timeout(600)
def test_an_init_that_is_killed_during_its_copy_leaves_a_slot_and_is_run_again_without_it(
    database, engines, interconnect
):
    database.execute("create table t (id int primary key, note text)")
    database.execute("insert into t select g, repeat('n', 200) from generate_series(1, 60000) g")
    engine = engines(database, interconnect.url, rest='[snapshot]\nmode = "initial"')
    name = f"{database.name}_dbz"
    slot = ("select confirmed_flush_lsn from pg_replication_slots where slot_name = %s", [name])
    for killed in ("edge", "engine"):
        engine.start(command="init")
        eventually(lambda: database.execute(*slot) not in ([], [(None,)]), 120, saying="a slot is there")
        if killed == "edge":
            engine.kill()
        else:
            os.kill(engine_pid(engine), signal.SIGKILL)
            assert engine.process.wait(60) == NotConnected.exit_code
        assert engine.checkpoint["stage"] == "making"
        with pytest.raises(NeedsOperator, match=f"slot {name} is there already"):
            engine.init()
        drop = (
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = %s and not active"
        )
        eventually(lambda drop=drop: database.execute(drop, [name]), 60, saying="the former session has ended")
        database.execute("delete from t where id = (select max(id) from t)")
    engine.init()
    database.execute("delete from t where id > 2000")
    with engine.running():
        eventually(lambda: len(interconnect.changes) >= 59_998 + 57_998, 300, saying="copy and changes arrive")
    ids = {
        op: [(change["after"] or change["before"])["id"] for change in interconnect.changes if change["op"] == op]
        for op in "rd"
    }
    assert engine.checkpoint["system_identifier"] == system(database)
    assert (sorted(ids["r"]), sorted(ids["d"])) == ([*range(1, 59_999)], [*range(2001, 59_999)])


@pytest.mark.timeout(300)
def test_the_server_is_asked_by_its_own_functions_whatever_is_in_the_roles_search_path(
    database, engines, interconnect, tmp_path
):
    name = f"{database.name}_dbz"
    database.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", [name])
    database.execute("""
        create schema theirs;
        create table theirs.called ();
        create view theirs.pg_replication_slots as select * from pg_catalog.pg_replication_slots where false;
        create function theirs.pg_is_in_recovery() returns bool language sql as 'insert into theirs.called default values
            returning true';
        create function theirs.less(pg_lsn, pg_lsn) returns numeric language sql as 'insert into theirs.called default values
            returning 1';
        create operator theirs.- (leftarg = pg_lsn, rightarg = pg_lsn, function = theirs.less);
    """)
    ((begun,),) = database.execute("select pg_current_wal_lsn() - '0/0'::pg_lsn")
    database.execute(f"alter database {database.name} set search_path = theirs, pg_catalog")
    config = engines(database, interconnect.url).config.source.debezium

    process = EngineProcess(config.java, 128, class_path("postgres"), tmp_path)
    try:
        process.greet(config.settings("no_data", "p"))
        server = process.hello(120)
    finally:
        process.close()
    assert (server.system_identifier, server.has_slot) == (system(database), True)
    assert server.log_end >= begun
    assert database.execute("select count(*) from theirs.called") == [(0,)]
