"""A MariaDB, and a MySQL, that Debezium's engine reads, behind the edge: what is sent, exactly once, beside our own edge."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from edge.debezium.checkpoint import HISTORY
from headrace.errors import NeedsOperator
from tests.debezium.binlog import ROWS, TABLES, TYPES, WORK
from tests.debezium.conftest import ENVIRONMENT, OURS, THEIRS
from tests.debezium.test_engine import engine_pid, run_with_a_kill_in_the_copy, schemas
from tests.edge.under_test import EdgeUnderTest, made_in, refused
from tests.kafka.connect import java
from tests.rules.waiting import eventually
from tests.servers.debian import Mysql97
from tests.servers.fix_mariadb import QUICK, MariadbDatabase, with_table
from tests.servers.fix_stack import served

SOURCE = """
[source.debezium]
connector = "{kind}"
java = "{java}"
memory_megabytes = 256

[source.debezium.properties]
"database.hostname" = "127.0.0.1"
"database.port" = {port}
"database.user" = "root"
"database.server.id" = {server_id}
"database.include.list" = "{name}"
"database.ssl.mode" = "{ssl}"

[source.debezium.secrets]
"database.password" = "env:NO_PASSWORD"
"""
NO_TLS = {"mariadb": "disable", "mysql": "disabled"}
#: What Debezium has of another moment or place, or in two records of two positions.
_OWN = {"position", "pos", "version", "ts_ms"}
#: What Debezium's connectors have otherwise, as docs/debezium.md says.
_OTHER = {
    # Of zero dates, and of the year 0000.
    5: {"must", "must_ts", "da", "dt", "dt3", "dt6", "ts", "ts3", "ts6", "y"},
}


@pytest.fixture(scope="session")
def mysql97_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mysql97]:
    """Yield a running MySQL 9.7, shared by the session."""
    yield from served(Mysql97(tmp_path_factory.mktemp("mysql97"), settings=QUICK))


@pytest.fixture
def mysql97(mysql97_server: Mysql97) -> Iterator[MariadbDatabase]:
    """Yield a fresh database of that server, with a table `t`."""
    yield from with_table(mysql97_server)


@pytest.fixture(params=["maria", "mysql", "mysql97"])
def database(request: pytest.FixtureRequest) -> MariadbDatabase:
    """Return a fresh database of each server."""
    made: MariadbDatabase = request.getfixturevalue(request.param)
    return made


@pytest.fixture
def kind(database: MariadbDatabase) -> str:
    """Return the kind of server."""
    return database.server.kind


@pytest.fixture
def engines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., EdgeUnderTest]]:
    """Return what makes edges whose sources Debezium reads."""
    monkeypatch.setenv("NO_PASSWORD", "")
    server_ids = iter(range(9001, 9999))

    def edge(folder: Path, database: MariadbDatabase, url: str, **changes: Any) -> EdgeUnderTest:
        kind = database.server.kind
        text = SOURCE.format(
            kind=kind,
            java=java(ENVIRONMENT),
            port=database.server.port,
            name=database.name,
            server_id=next(server_ids),
            ssl=NO_TLS[kind],
        )
        return EdgeUnderTest(folder, text, url, **changes)

    (tmp_path / "engines").mkdir()
    with made_in(tmp_path / "engines", edge) as make:
        yield make


def rows(interconnect: Any) -> list[tuple[Any, Any]]:
    """Return the changes without what differs by design: what is left is the same of both edges."""
    found = []
    for _, key, record in list(interconnect.records):
        if record is None or "op" not in record:
            continue
        value = {name: each for name, each in record.items() if name not in {"ts_ms", "former_key"}}
        value["source"] = {name: each for name, each in value["source"].items() if name not in _OWN}
        # A changed key is two changes to Debezium.
        value["transaction"] = value["transaction"]["id"]
        for image in ("before", "after"):
            if value[image] is None:
                continue
            row = value[image] = dict(value[image])
            for column in _OTHER.get(row.get("id"), ()) if "must" in row else ():
                del row[column]
        found.append((key, value))
    return found


@pytest.mark.timeout(600)
def test_debezium_behind_the_edge_sends_what_our_own_edge_sends(database, maria_edges, engines, interconnects, kind):
    ours, theirs = interconnects(), interconnects()
    # Of a changed key Debezium makes a delete and a create.
    own = maria_edges(database, ours.url, rest='[records]\nkey_change = "delete-create"')
    engine = engines(database, theirs.url)
    own.init()
    engine.init()
    more = ["alter table types add u uuid", "update types set u = '6ccd780c-baba-1026-9564-5b8c656024db'"]
    with own.running(), engine.running():
        work = [TYPES, *ROWS, *TABLES, *WORK, *(more if kind == "mariadb" else ()), "truncate types"]
        for statement in (*work, "insert into t values (-1, 'last')"):
            database.execute(statement)
        last = lambda there: [key for key, value in rows(there) if key == {"id": -1}]  # noqa: E731
        eventually(lambda: last(ours), 120, saying="our own edge's last change arrives")
        eventually(lambda: last(theirs), 240, saying="Debezium's arrive")
    assert rows(theirs) == rows(ours)
    assert schemas(theirs) == schemas(ours)
    positions = [position for position, _, value in theirs.records if "op" in value]
    assert positions == sorted(set(positions))


@pytest.mark.timeout(900)
def test_what_debezium_reads_is_proved_equal_and_has_the_rows_of_our_own_edge(
    database, maria_edges, engines, lake, kind
):
    address = f'host = "127.0.0.1"\nport = {database.server.port}\nuser = "root"\ndatabases = ["{database.name}"]'
    silver, url = lake(kind, address)
    own, engine = maria_edges(database, url, source=OURS), engines(database, url, source=THEIRS)
    own.init()
    engine.init()
    with own.running(), engine.running():
        # A lake has no dates with a zero.
        for statement in (TYPES, *(row for row in ROWS if "0000-00-00" not in row), *TABLES, *WORK):
            database.execute(statement)
        # Nor have alterations that change rows records of them.
        database.execute("delete from accounts")
        database.execute("insert into t values (1, 'x')")
        database.execute("create table written (id int primary key, n int)")
        names = {"t", "types", "accounts", "pairs", "keyless", "uniques", "mixed", "written"}
        silver.check(database, {f"{database.name}.{name}" for name in names})


@pytest.mark.timeout(900)
def test_nothing_is_lost_or_doubled_when_engine_and_edge_are_killed(database, engines, interconnect):
    engine = engines(database, interconnect.url)
    engine.init()
    engine.start()
    try:
        for number in range(6):
            first = number * 1000
            for at in range(first, first + 1000, 50):
                database.execute(f"insert into t (id, note) values {', '.join(f'({at + n}, 0)' for n in range(50))}")
            # Each makes a history that has to be that of the row that is read.
            database.execute(f"alter table t add column a{number} int default {number} first")
            if number % 3 == 1:
                database.execute("flush binary logs")
                database.execute("create table other (x int)")
                database.execute("rename table t to former, other to t, former to other")
                database.execute("rename table t to former, other to t, former to other")
                database.execute("drop table other")
            if number:
                eventually(lambda first=first: len(interconnect.changes) > first - 900, 120, saying="changes arrive")
            if number % 2:
                engine.kill()
                engine.start()
            else:
                os.kill(eventually(lambda: engine_pid(engine), 60), signal.SIGKILL)
        eventually(lambda: len(interconnect.changes) >= 6000, 240, saying="all changes arrive")
        database.execute("insert into t (id) values (-1)")
        eventually(lambda: len(interconnect.changes) >= 6001, 120, saying="the last change arrives")
    finally:
        engine.kill()
    changes = interconnect.changes
    assert [change["after"]["id"] for change in changes] == [*range(6000), -1]
    columns = [[f"a{each}" for each in reversed(range(at // 1000))] + ["id", "note"] for at in range(6000)]
    assert [list(change["after"]) for change in changes[:-1]] == columns


@pytest.mark.timeout(600)
def test_rows_that_are_there_before_are_copied_once_whatever_is_killed(database, engines, interconnect):
    for at in range(0, 20_000, 1000):
        database.execute(f"insert into t values {', '.join(f'({at + n}, 0)' for n in range(1000))}")
    database.execute(
        "create table texts (id int primary key, l varchar(9) character set latin1, u text, n int default 7)"
    )
    database.execute("insert into texts values (1, 'é', '日本', null)")
    engine = engines(database, interconnect.url, rest='[snapshot]\nmode = "initial"')
    engine.init()
    database.execute("delete from t where id = 0")
    run_with_a_kill_in_the_copy(engine, interconnect, 20_002)
    copied = [change["after"] for change in interconnect.changes if change["op"] == "r"]
    assert [row["id"] for row in copied if "note" in row] == [*range(20_000)]
    assert [row for row in copied if "note" not in row] == [{"id": 1, "l": "é", "u": "日本", "n": None}]
    assert [change["before"] for change in interconnect.changes if change["op"] != "r"] == [{"id": 0, "note": "0"}]


@pytest.mark.timeout(300)
def test_a_history_that_is_lost_cut_or_damaged_ends_in_an_error_that_names_the_way_out(database, engines, interconnect):
    engine = engines(database, interconnect.url)
    engine.init()
    history = engine.checkpoint_file.with_name(HISTORY)
    whole = history.read_bytes()
    with engine.running():
        database.execute("insert into t values (1, 'a')")
        eventually(lambda: len(interconnect.changes) == 1, 120)
        database.execute("alter table t add more int")
        database.execute("insert into t values (2, 'b', 2)")
        eventually(lambda: len(interconnect.changes) == 2, 120)
        eventually(
            lambda: engine.checkpoint["history_bytes"] > len(whole), 60, saying="the checkpoint knows its length"
        )
    grown = history.read_bytes()
    for content, words in (
        (None, "is lost or cut short"),
        (whole, "is lost or cut short"),
        (grown[:20] + b"\xff}{" + grown[23:], "is damaged"),
    ):
        history.unlink(missing_ok=True)
        if content is not None:
            history.write_bytes(content)
        error = refused(engine)
        assert words in error.message, error
        assert "headrace edge init" in error.hint
    # Half a line, as a crash may leave it, is not taken for one.
    history.write_bytes(grown + b'{"source"')
    with engine.running():
        database.execute("alter table t add evenmore int")
        database.execute("insert into t values (3, 'c', 3, 3)")
        eventually(lambda: len(interconnect.changes) == 3, 120)
    assert interconnect.changes[-1]["after"] == {"id": 3, "note": "c", "more": 3, "evenmore": 3}
    assert all(json.loads(line) for line in history.read_bytes().splitlines())


@pytest.mark.timeout(300)
def test_another_server_and_another_connector_are_refused(database, engines, interconnect, kind):
    engine = engines(database, interconnect.url)
    engine.init()
    checkpoint = engine.checkpoint
    other = {"mariadb": "mysql", "mysql": "mariadb"}[kind]
    for changes, words in (
        ({"system_identifier": "server_id 77"}, "the server is another one"),
        ({"connector": other}, f"of Debezium's connector '{other}'"),
        ({"offset": [checkpoint["offset"][0], '{"lsn":5}']}, "is damaged"),
    ):
        engine.checkpoint_file.write_text(json.dumps(checkpoint | changes))
        error = refused(engine)
        assert words in error.message, error
    assert interconnect.changes == []


@pytest.mark.timeout(300)
def test_the_history_is_that_of_the_row_whichever_servers_wrote_the_log(own_maria, engines, interconnect):
    engine = engines(own_maria, interconnect.url)
    engine.init()
    # As behind a failover, and with two domains, whose GTIDs are not always written in one order.
    with engine.running():
        own_maria.execute("insert into t values (0, '')")
        eventually(lambda: len(interconnect.changes) == 1, 120)
        own_maria.execute("set session server_id = 7")
        for domain in (3, 17):
            own_maria.execute(f"set session gtid_domain_id = {domain}")
            own_maria.execute(f"insert into t values ({domain}, 'a')")
        own_maria.execute("set session gtid_domain_id = 0")
        own_maria.execute("insert into t values (1, 'a')")
        eventually(lambda: len(interconnect.changes) == 4, 120)
        known = lambda: "17-7-" in engine.checkpoint["offset"][1] and "0-7-" in engine.checkpoint["offset"][1]  # noqa: E731
        eventually(known, 60, saying="all domains are acknowledged")
    before = engine.checkpoint_file.read_bytes()
    own_maria.execute("alter table t change note memo text")
    for number in (4, 5):
        own_maria.execute(f"insert into t values ({number}, 'b')")
        engine.start()
        try:
            eventually(lambda count=number + 1: len(interconnect.changes) == count, 120, saying="the row arrives")
        finally:
            engine.kill()
        # As a crash leaves it when the history has the alteration, and the checkpoint nothing of it.
        engine.checkpoint_file.write_bytes(before)
    assert [change["after"] for change in interconnect.changes[4:]] == [{"id": 4, "memo": "b"}, {"id": 5, "memo": "b"}]


@pytest.mark.timeout(300)
def test_a_log_without_any_gtid_is_refused_before_the_source_is_made(own_maria, engines, interconnect):
    own_maria.server.sql("reset master")
    engine = engines(own_maria, interconnect.url)
    with pytest.raises(NeedsOperator, match="no transaction with a GTID yet"):
        engine.init()
    own_maria.execute("insert into t values (1, 'a')")
    engine.init()
    with engine.running():
        own_maria.execute("insert into t values (2, 'b')")
        eventually(lambda: len(interconnect.changes) == 1, 120)


@pytest.mark.timeout(600)
def test_a_server_that_was_reset_ends_the_edge_however_much_it_has_written_since(own_maria, engines, interconnect):
    engine = engines(own_maria, interconnect.url)
    engine.init()
    with engine.running():
        for number in range(10):
            own_maria.execute(f"insert into t values ({number}, 'a')")
        eventually(lambda: len(interconnect.changes) == 10, 120)
        eventually(lambda: '"gtids":"0-2-' in engine.checkpoint["offset"][1], 60)
    own_maria.server.sql("reset master")
    assert "no longer has the log" in refused(engine).message
    for number in range(100, 200):
        own_maria.execute(f"insert into t values ({number}, 'other')")
    assert "no longer has the log" in refused(engine).message
    assert len(interconnect.changes) == 10
