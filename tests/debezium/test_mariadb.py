"""The edge's records with `profile = "debezium"` next to those of Debezium's MariaDB connector, over one database."""

import pytest

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge_file import bridge_file
from tests.debezium.compare import by_reason, differences, records
from tests.debezium.intended import MARIADB_CONNECT, MARIADB_ENVELOPE, MARIADB_VALUES
from tests.waiting import eventually

TYPES = """
create table types (
    id int primary key, t1 tinyint, t1u tinyint unsigned, flag tinyint(1), t2 smallint, t2u smallint unsigned, t3 mediumint,
    t3u mediumint unsigned, t4 int, t4u int unsigned, t8 bigint not null, t8u bigint unsigned, n decimal(12,2) not null,
    whole decimal(20,0), f float, d double, b1 bit, b10 bit(10), b64 bit(64), y year, da date, must date not null, ti time,
    ti3 time(3), dt datetime, dt3 datetime(3), dt6 datetime(6), ts timestamp null, ts3 timestamp(3) null,
    ts6 timestamp(6) null, c char(5), vc varchar(20), l1 varchar(20) character set latin1, tx text, bin binary(4),
    vb varbinary(20), bl blob, e enum('a', 'b', 'é"'), s set('x', 'y', 'z'), j json, u uuid, g geometry, p point
) default character set utf8mb4
"""
#: Each is one transaction.
ROWS = [
    r"""insert into types values (1, -128, 255, 1, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295,
        -9223372036854775808, 9223372036854775807, 12.30, -1, 1.5, 0.1, b'1', b'1000000001', b'101', 2026, '2026-01-31',
        '2026-01-31', '-838:59:59', '26:00:00.123', '2026-01-31 09:15:00', '1969-12-31 23:59:59.250',
        '2026-01-31 09:15:00.123456', '2026-01-31 09:15:00', '2026-01-31 09:15:00.5', '2026-01-31 09:15:00.000001', 'c', 'vc "é"',
        'latin é', 'text', x'01', x'00ff10', x'fb', 'é"', 'x,z', '{"a": [1, "x"]}', '6ccd780c-baba-1026-9564-5b8c656024db',
        point(1, -2), point(1.5, 2))""",
    "insert into types (id, t8, n, must) values (2, 0, 0, '1000-01-01')",
    """insert into types (id, t8, n, must, b10, b64, e, s, da, dt6, y, ts6, g) values (3, 9223372036854775807, -9999999999.99,
       '9999-12-31', 0, 18446744073709551615, 'a', '', '9999-12-31', '9999-12-31 23:59:59.999999', 1901,
       '2038-01-19 03:14:07.999999', st_geomfromtext('LINESTRING(0 0,1 1)', 4326))""",
    "update types set vc = 'changed', f = null where id = 1",
    "update types set id = 20 where id = 2",
    "delete from types where id = 3",
]
TABLES = [
    "create table accounts (id int primary key, owner varchar(20) not null, note text)",
    "create table pairs (a int, b varchar(9), c text, primary key (a, b))",
    "create table keyless (a int, b text)",
]
WORK = [
    "insert into accounts select seq, concat('owner ', seq), null from seq_1_to_3",
    "begin",
    "insert into accounts values (4, 'four', 'x')",
    "insert into pairs values (1, 'one', 'c')",
    "update accounts set note = 'y' where id = 1",
    "commit",
    "update accounts set note = 'z' where id in (2, 3)",
    "update accounts set id = 10 where id = 1",
    "update pairs set b = 'eins', c = null",
    "delete from accounts where id = 2",
    "delete from pairs",
    "insert into keyless values (1, 'a'), (null, null)",
    "update keyless set b = 'b' where a = 1",
    "alter table accounts add column later int default 7",
    "insert into accounts values (20, 'after the change', null, null)",
    "truncate pairs",
]
#: How many records Debezium writes of the work for each table, tombstones included.
COUNTS = {"accounts": 13, "pairs": 6, "keyless": 3}


@pytest.mark.timeout(600)
def test_changes_of_every_kind_are_written_as_debezium_writes_them(both):
    remaining = {
        table: by_reason(differences(*pair), MARIADB_ENVELOPE)[0] for table, pair in both(TABLES, WORK, COUNTS).items()
    }
    assert remaining == {table: {} for table in COUNTS}


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ({}, {}),
        (
            {"decimal": "string", "time": "microseconds", "binary": "hex"},
            {"decimal.handling.mode": "string", "time.precision.mode": "microseconds", "binary.handling.mode": "hex"},
        ),
        (
            {"decimal": "double", "time": "connect", "binary": "base64-url-safe"},
            {
                "decimal.handling.mode": "double",
                "time.precision.mode": "connect",
                "binary.handling.mode": "base64-url-safe",
            },
        ),
    ],
    ids=lambda given: " ".join(given.values()) or "default",
)
def test_values_of_every_type_are_written_as_debezium_writes_them(both, ours, theirs):
    (pair,) = both([TYPES], ROWS, {"types": 9}, ours, theirs).values()
    intended = MARIADB_ENVELOPE | MARIADB_VALUES | (MARIADB_CONNECT if (ours or {}).get("time") == "connect" else {})
    unintended, _ = by_reason(differences(*pair), intended)
    assert unintended == {}


@pytest.fixture
def both(maria, maria_edges, brokers, inside, connect, tmp_path):
    """Return a function that has both capture some work; it returns for each table our records and Debezium's."""

    def captured(tables_sql, work, tables, ours=None, theirs=None):
        maria.execute("set time_zone = '+00:00'")
        for statement in tables_sql:
            maria.execute(statement)
        # Not the names of the other test's connectors, whose offsets the worker keeps.
        prefixes = [f"{product}-maria-{maria.name}" for product in ("ours", "theirs")]
        given = {"topic": prefixes[0], "tables": {f"{maria.name}.{table}": "delete" for table in tables}}
        file = load(bridge_file(tmp_path, brokers.bootstrap, {"jakarta/bank": [0]}, **given), BridgeFile)
        make(admin(file.kafka), file)
        bridge = inside(brokers.bootstrap, {"jakarta/bank": [0]}, **given)
        chosen = "".join(f'{name} = "{value}"\n' for name, value in ({"profile": "debezium"} | (ours or {})).items())
        edge = maria_edges(maria, f"amqp://127.0.0.1:{bridge.port}", rest=f"[records]\n{chosen}")
        edge.init()
        ((newest,),) = maria.execute("select max(id) from information_schema.processlist")
        connect.add(prefixes[1], connector(maria, prefixes[1], brokers.bootstrap) | (theirs or {}))
        dumps = (
            f"select count(*) from information_schema.processlist where command like 'Binlog Dump%%' and id > {newest}"
        )
        reads = lambda: connect.runs(prefixes[1]) and maria.execute(dumps) == [(1,)]  # noqa: E731
        eventually(reads, 120, every=0.5, saying="Debezium reads")
        with edge.running():
            for statement in work:
                maria.execute(statement)
            found = {
                table: [records(brokers.bootstrap, f"{prefix}.{maria.name}.{table}", count) for prefix in prefixes]
                for table, count in tables.items()
            }
        # Shown where the test fails.
        print(connect.log.read_text()[-8000:])
        connect.remove(prefixes[1])
        return found

    return captured


def connector(database, prefix, bootstrap):
    """Return the settings of Debezium's connector, with its defaults but for what the test needs."""
    return {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.server.port,
        "database.user": "root",
        "database.password": "",
        "database.server.id": 9000 + int(database.name[1:]),
        "database.ssl.mode": "disable",
        "database.include.list": database.name,
        "topic.prefix": prefix,
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"history-{prefix}",
        "include.schema.changes": "false",
        "snapshot.mode": "no_data",
        "provide.transaction.metadata": "true",
        "tasks.max": 1,
    }
