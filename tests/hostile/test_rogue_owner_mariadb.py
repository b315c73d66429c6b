r"""A rogue owner of a captured database of MariaDB's, at a real server with the edge as a process: a user who may do everything
in one database, and an honest one beside it. The edge goes on, honest rows arrive, and nothing runs with the edge's rights.
"""

import json
import urllib.request

import pymysql
import pytest

from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from infra.local.server import free_port
from tests.hostile.test_rogue_owner import NAMES, goes_on, honest
from tests.servers.fix_mariadb import MariadbDatabase

_LABEL = "x" * 40
#: What it makes and does, each by itself: what the server refuses is none.
ACTS = (
    "create table moods (id int primary key, m enum({}))".format(", ".join(f"'{_LABEL}{n}'" for n in range(3000))),
    f"insert into moods values (1, '{_LABEL}0'), (2, '{_LABEL}2999')",
    f"""alter table moods modify m enum('{_LABEL}0', 'quote'' \\\\ "')""",
    """insert into moods values (3, 'quote'' \\\\ "')""",
    "create table sets (id int primary key, s set('a', 'b', '''', ' '))",
    "create table wide (id int primary key, " + ", ".join(f"c{n} int" for n in range(900)) + ")",
    "insert into wide (id) values (1)",
    "update wide set c1 = 1",
    """create table odd (id decimal(65, 30) primary key, y year, d date, t time(6), ts timestamp(6) null, f float, dd double,
    b bit(64), j json, g geometry, u uuid, i inet6, bl longblob, tx longtext character set utf16,
    l varchar(9) character set latin1)""",
    """insert into odd values (12345678901234567890.5, 1901, '0000-00-00', '-838:59:59.999999', null, -1e38, 1e308, b'1',
    '{"a": 1}', point(1, 2), uuid(), '::1', x'00ff', '\U0001f600', 'é')""",
    "insert ignore into odd (id, d, j) values (2, '2026-00-31', '[]')",
    "insert into odd (id, bl) values (3, repeat('x', 200000))",
    "create table bodies (id int primary key, j json)",
    "insert into bodies values (1, concat(repeat('[', 31), repeat(']', 31)))",
    "create table keyless (a text)",
    "insert into keyless values ('a'), ('a')",
    "delete from keyless limit 1",
    "create table moved (id int primary key)",
    "insert into moved values (1)",
    "rename table moved to moved2",
    "create table moved (id varchar(9) primary key)",
    "insert into moved values ('x')",
    "drop table moved2",
    "alter table moved add column b int first, modify id varchar(99), add column c int invisible",
    "insert into moved (id, b, c) values ('y', 1, 2)",
    "alter table moved drop primary key",
    "insert into moved (id) values ('y')",
    "create or replace table moved (other int primary key)",
    "insert into moved values (7)",
    """create table parts (id int primary key) partition by range (id)
    (partition a values less than (9), partition b values less than (99))""",
    "insert into parts values (1), (10)",
    "alter table parts drop partition a",
    "truncate parts",
    "create table made (id int primary key, v int as (id + 1) virtual, s int as (id + 2) stored)",
    "insert into made (id) values (1)",
    "create table history (id int primary key) with system versioning",
    "insert into history values (1)",
    "delete from history",
    "create table packed (id int primary key, c text compressed)",
    "insert into packed values (1, repeat('a', 5000))",
    "create table parent (id int primary key)",
    "create table child (id int primary key, p int references parent (id) on delete cascade on update cascade)",
    "insert into parent values (1)",
    "insert into child values (1, 1)",
    "update parent set id = 2",
    "delete from parent",
    "create table copied as select id from odd",
    "create sequence numbers",
    "select nextval(numbers)",
    "create trigger fire after insert on copied for each row insert into keyless values (new.id)",
    "insert into copied values (9)",
    "create procedure p() begin insert into keyless values ('p'); commit; insert into keyless values ('q'); rollback; end",
    "call p()",
    "/*!99999 drop table honest */",
    "create /* drop table honest; */ table `t ` (id int primary key)",
    "create table honest2 (id int primary key) comment 'x\\'; drop table honest; -- \\0'",
    "set session binlog_row_image = 'MINIMAL'",
    "set session binlog_format = 'STATEMENT'",
    "update moved set other = 8",
    "set session sql_log_bin = 0",
    "set session sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    'create table "quoted""name" ("a""b" int primary key)',
    "set session sql_mode = ''",
    "set session server_id = 9",
    "set session pseudo_thread_id = 1",
    "set session foreign_key_checks = 0, unique_checks = 0",
    "xa start 'x', '', 9",
    "insert into keyless values ('in xa')",
    "xa end 'x', '', 9",
    "xa prepare 'x', '', 9",
    "xa commit 'x', '', 9",
    "lock tables keyless write",
    "unlock tables",
    "flush binary logs",
    "purge binary logs before now()",
    "reset master",
    "drop database mysql",
    "create user more",
    "drop table odd, wide, moods",
)  # fmt: skip
#: A view in the place of a table, which asks a function who it is run by; and one that runs with the rights of who asks.
_TRAPS = (
    "create table hits (who text)",
    "create function note() returns int reads sql data begin insert into hits values (current_user()); return 1; end",
    """create function ask() returns int reads sql data sql security invoker
    begin return (select count(*) from mysql.global_priv); end""",
    "create table trap (id int primary key)",
    "insert into trap values (1)",
    "drop table trap",
    "create sql security invoker view trap as select note() as id, ask() as b",
)


@pytest.fixture
def owner(maria):
    """Yield a connection of the owner's, at a server that lets owners make functions."""
    name = f"mallory_{maria.name}"
    maria.execute("set global log_bin_trust_function_creators = 1")
    maria.execute(f"create user {name}")
    maria.execute(f"grant all on {maria.name}.* to {name}")
    connection = pymysql.connect(
        host="127.0.0.1", port=maria.server.port, user=name, database=maria.name, charset="utf8mb4", autocommit=True,
        ssl_disabled=True,
    )  # fmt: skip
    yield connection
    connection.close()
    maria.execute("set global log_bin_trust_function_creators = 0")
    maria.execute(f"drop user {name}")


@pytest.fixture
def beside(maria):
    """Yield the honest database."""
    honest_database = MariadbDatabase(maria.server)
    honest_database.execute("create table honest (id int primary key, note text)")
    yield honest_database
    honest_database.drop()


@pytest.fixture
def watched(maria_edges, maria, beside, interconnect):
    """Return an edge of both databases, whose user has the rights of docs/mariadb.md."""
    name, metrics = f"captor_{maria.name}", f"127.0.0.1:{free_port()}"
    maria.execute(f"create user {name}")
    maria.execute(f"grant replication slave, replication master admin, binlog monitor, select on *.* to {name}")
    edge = maria_edges(
        maria, interconnect.url, user=name, databases=f'["{maria.name}", "{beside.name}"]',
        rest=f'[metrics]\nlisten = "{metrics}"\n',
    )  # fmt: skip
    edge.metrics = metrics
    edge.init()
    edge.start()
    yield edge
    if edge.process.poll() is None:
        edge.kill()
    maria.execute(f"drop user {name}")


def act(connection, statement):
    """Run a statement, if the server takes it; return whether it did."""
    with connection.cursor() as cursor:
        try:
            cursor.execute(statement)
        except pymysql.MySQLError:
            return False
    return True


def test_whatever_an_owner_makes_and_writes_the_edge_goes_on_and_honest_rows_arrive(
    watched, maria, beside, owner, interconnect
):
    edge = watched
    goes_on(edge, beside, interconnect, 1)
    taken = 0
    for number, statement in enumerate(ACTS, 2):
        taken += act(owner, statement)
        goes_on(edge, beside, interconnect, number)
    assert taken > len(ACTS) * 2 // 3
    count, arriving = len(ACTS) + 2, set()
    for number, name in enumerate(NAMES, count):
        quoted = name.replace("`", "``")
        made = act(owner, f"create table `{quoted}` (`{quoted}` int primary key, `{quoted}2` text)")
        if made and act(owner, f"insert into `{quoted}` values (1, 'x')"):
            arriving.add(name)
        goes_on(edge, beside, interconnect, number)
    assert len(arriving) > len(NAMES) // 2

    # What the server took of the names arrives under those names,
    assert arriving - {change["source"]["table"] for change in interconnect.changes} == set()
    # nothing that it made runs with the edge's rights, when it is copied or verified,
    for statement in _TRAPS:
        assert act(owner, statement), statement
    assert "Traceback" not in edge.command("snapshot", f"{maria.name}.trap", f"{maria.name}.copied").stderr
    assert "Traceback" not in edge.command("doctor").stderr
    goes_on(edge, beside, interconnect, count + len(NAMES))
    user = load(edge.path, EdgeFile).source.mariadb.user
    assert not [who for (who,) in maria.execute("select who from hits") if who.startswith(user)]
    # status and metrics are read by their readers, the honest rows are there once and in order, and the log steers no terminal.
    assert json.loads(urllib.request.urlopen(f"http://{edge.metrics}/status", timeout=30).read())
    assert b"headrace_edge" in urllib.request.urlopen(f"http://{edge.metrics}/metrics", timeout=30).read()
    assert honest(interconnect) == list(range(1, count + len(NAMES) + 1))
    assert edge.terminate() == 0
    assert "\x1b[31m" not in (edge.folder / "edge.log").read_text()
