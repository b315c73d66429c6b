"""What `profile = "debezium"` writes in Avro next to what Debezium's own connectors write through an Avro converter.

Schemas are compared column by column, as both registered them, and records as a consumer of both topics reads them.
"""

import json

import pytest

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.debezium import binlog, test_mariadb, test_mysql, test_postgresql, workload
from tests.debezium.compare import Record, by_reason, differences
from tests.debezium.intended import (
    BINLOG_ENVELOPE,
    BINLOG_VALUES,
    ENVELOPE,
    MARIADB_VALUES,
    MYSQL_VALUES,
    TEXTS,
    VALUES,
)
from tests.kafka.connect import Connect
from tests.kafka.reading import read_committed
from tests.lake.avro_reading import read
from tests.registry.conftest import PYTHON
from tests.rules.waiting import eventually
from tests.servers import jars
from tests.servers.fix_stack import served

pytest_plugins = ["tests.bridge.fix_bridge", "tests.servers.fix_mysql"]
SOURCE = "jakarta/bank"
CONVERTER = {
    "": "io.apicurio.registry.utils.converter.AvroConverter",
    ".apicurio.registry.auto-register": "true",
    ".apicurio.registry.find-latest": "true",
    ".apicurio.registry.headers.enabled": "false",
    ".apicurio.registry.as-confluent": "true",
    ".apicurio.registry.use-id": "contentId",
}
#: Columns of more types, which tests/debezium has no row of.
MORE = """
alter table types add int2s int2[], add int8s int8[], add floats float4[], add doubles float8[], add flags bool[],
    add blobs bytea[], add jsons jsonb[], add ns numeric[], add times time[], add tzs timetz[], add tss timestamp[],
    add vcs varchar(5)[], add oids oid[], add inets inet[], add chars char(3)[], add citexts citext[],
    add ranges int4range[], add moods mood[], add x xml, add vb0 varbit, add ch "char", add nm name, add lsn pg_lsn,
    add m8 macaddr8, add ivs interval day to second
"""
MORE_ROW = r"""
insert into types (id, i8, n2, t, int2s, int8s, floats, doubles, flags, blobs, jsons, ns, times, tzs, tss, vcs, oids, inets,
    chars, citexts, ranges, moods, vb0, ch, nm, lsn, m8, ivs)
values (7, 0, 0, '', '{1,null}', '{-1}', '{0.1,NaN}', '{0.1}', '{t,f}', array['\x00ff'::bytea], array['{"a": 1}'::jsonb],
    '{1.50,null}', '{09:15:00.25}', '{09:15:00+07}', '{2026-01-31 09:15:00}', '{vc}', '{26}', '{10.1.2.3}', '{a}', '{CiText}',
    '{"[1,5)"}', '{fine}', b'101', 'x', 'name', '16/B374D848', '08:00:2b:01:02:03:04:05', '1 day')
"""
SETTINGS = [
    ({}, {}),
    (
        {"decimal": "string", "time": "isostring", "binary": "hex", "interval": "string", "hstore": "map"},
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "isostring",
            "binary.handling.mode": "hex",
            "interval.handling.mode": "string",
            "hstore.handling.mode": "map",
        },
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
BINLOG_SETTINGS = [({}, {}), ({"time": "microseconds"}, {"time.precision.mode": "microseconds"})]
#: Fields that are there in each record here, and null where they have nothing.
ADDITIONS = {
    f"value.{name}": "added: null in most records" for name in ("last", "too_large", "unchanged", "former_key")
}
#: Columns whose types are meant to differ.
COLUMNS = {
    "box": "Debezium leaves columns of this type out; ours is the database's text",
    "lsn": "as box",
    "mood": "the log does not have the labels of an enum type: ours is a text without a name",
    "moods": "as mood; Debezium's elements cannot be null, and ours can, as those of any other array",
}
MORE_VALUES = {
    "value.after.lsn": "Debezium leaves columns of this type out",
    "value.before.lsn": "as in the new row",
    "value.after.nm": "Debezium writes null for a name; ours is the value",
}
BINLOG_COLUMNS = {
    "t8u": "a long has no greater numbers than 2^63 - 1: ours is the decimal of bigint.unsigned.handling.mode=precise",
    "p": "the log does not say which geometries a column takes: ours is that of any",
    "fd": "the log does not say how many digits a FLOAT has: Debezium's is a double",
}
MYSQL_COLUMNS = {"ps": "as p"}
BINLOG_AVRO = {
    "value.after.t8u": "the same number as a decimal",
    "value.before.t8u": "as in the new row",
}
#: Properties that say nothing of values: descriptions, and defaults, which the log does not carry.
UNCOMPARED = frozenset({"doc", "connect.doc", "connect.default", "default"})


@pytest.fixture(scope="module")
def connect(kafka, tmp_path_factory):
    folder, environment = tmp_path_factory.mktemp("connect"), PYTHON.parents[1]
    worker = Connect(folder, kafka.bootstrap, jars.CONNECTORS, environment=environment, more=jars.avro_converter())
    yield from served(worker)


@pytest.fixture
def both(kafka, topic, inside, registry, connect, tmp_path):
    """Return a function that has both capture some work: for each its columns' types and its records, ours first."""

    def captured(table, prefixes, edge_of, connector, reads, work, count):
        ours, theirs = prefixes
        given = {"topic": ours, "tables": {table: "delete"}, "more": f'\n[registry]\nurl = "{registry.url}"\n'}
        file = load(bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0]}, **given), BridgeFile)
        make(admin(file.kafka), file)
        for name in (f"{theirs}.{table}", f"{theirs}.transaction", f"history-{theirs}"):
            topic(name=name)
        bridge = inside(kafka.bootstrap, {SOURCE: [0]}, **given)
        edge = edge_of(f"amqp://127.0.0.1:{bridge.port}")
        edge.init()
        url = registry.url.partition("/apis")[0] + "/apis/registry/v2"
        converters = {
            f"{part}.converter{name}": value
            for part in ("key", "value")
            for name, value in (CONVERTER | {".apicurio.registry.url": url}).items()
        }
        connect.add(theirs, connector | converters | {"schema.name.adjustment.mode": "avro"})
        eventually(reads, 120, every=0.5, saying="Debezium reads")
        topics = [f"{prefix}.{table}" for prefix in prefixes]
        try:
            with edge.running():
                work()
                for name in topics:
                    eventually(lambda name=name: len(read_committed(kafka.bootstrap, name)) == count, 120, every=0.5)
        finally:
            # Shown where the test fails.
            print(connect.log.read_text()[-8000:])
            connect.remove(theirs)
        records = [decoded(registry, kafka.bootstrap, name) for name in topics]
        return [columns(registry, name) for name in topics], records

    return captured


def decoded(registry, bootstrap, topic):
    """Return the records of a topic by its only schemas, bytes in hexadecimal."""
    schemas = [registered(registry, topic, part) for part in ("key", "value")]

    def one(data, schema):
        return data and json.loads(json.dumps(read(data[5:], schema), default=bytes.hex))

    rows = [(each.key, each.value) for each in read_committed(bootstrap, topic)]
    return [Record(*map(one, pair, schemas), ()) for pair in rows]


def registered(registry, topic, part):
    return json.loads(registry.request("GET", f"/subjects/{topic}-{part}/versions/latest")["schema"])


def columns(registry, topic):
    """Return the type of each column by its name, without the null of columns that may be null."""
    whole = in_full(registered(registry, topic, "value"), {})
    before = next(field["type"] for field in whole["fields"] if field["name"] == "before")
    return {field["name"]: present(field["type"]) for field in present(before)["fields"]}


def present(kind):
    """Return what a type is where it is not null."""
    return next(branch for branch in kind if branch != "null") if isinstance(kind, list) else kind


def in_full(kind, names):
    """Return a type with each record in the place of its name, and without properties that are not compared."""
    if isinstance(kind, list):
        return [in_full(branch, names) for branch in kind]
    if isinstance(kind, str):
        return names.get(kind, kind)
    values = {name: value for name, value in kind.items() if name not in UNCOMPARED}
    for part in ("items", "values"):
        if part in values:
            values[part] = in_full(values[part], names)
    if "fields" in values:
        values["fields"] = [
            {name: value for name, value in field.items() if name not in UNCOMPARED}
            | {"type": in_full(field["type"], names)}
            for field in values["fields"]
        ]
        names[f"{values.get('namespace')}.{values['name']}"] = values
    return values


def differing(types):
    """Return the columns whose types differ, ours first."""
    ours, theirs = types
    return {name: (ours.get(name), theirs.get(name)) for name in {*ours, *theirs} if ours.get(name) != theirs.get(name)}


def unintended(found, intended):
    """Return the columns that differ and are not intended to; each of those that are has to."""
    assert intended.keys() <= found.keys()
    remaining = {name: pair for name, pair in found.items() if name not in intended}
    for name, pair in remaining.items():
        # Shown whole where the test fails.
        print(f"{name}: ours {json.dumps(pair[0])}, Debezium's {json.dumps(pair[1])}")
    return remaining


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ours", "theirs"), SETTINGS, ids=lambda given: " ".join(given.values()) or "profile")
def test_of_postgresql(both, consumed, database, edges, ours, theirs):
    database.execute(workload.TYPES)
    database.execute(MORE)
    prefixes = [f"{product}-avro-{database.name}" for product in ("ours", "theirs")]
    reading = f"select active from pg_replication_slots where slot_name = '{database.name}_debezium'"
    types, records = both(
        "public.types",
        prefixes,
        lambda url: edges(database, url, more=chosen(ours)),
        test_postgresql.connector(database, prefixes[1]) | theirs,
        lambda: database.execute(reading) == [(True,)],
        # An array of arrays has no form in Avro: Debezium writes nulls there.
        lambda: [database.execute(row.replace("{{1,2},{3,4}}", "{1,2}")) for row in [*workload.ROWS, MORE_ROW]],
        10,
    )
    of_columns = unintended(differing(types), COLUMNS)
    intended = ENVELOPE | ADDITIONS | VALUES | MORE_VALUES
    intended |= TEXTS if ours.get("decimal") == "string" else {}
    assert (of_columns, by_reason(differences(*records), intended)[0]) == ({}, {})
    if not ours:
        # Confluent's deserializers read them too; of Connect's own types they know no infinite date.
        assert [key for key, _ in consumed(f"{prefixes[0]}.public.types")] == [each.key for each in records[0]]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ours", "theirs"), BINLOG_SETTINGS, ids=lambda given: " ".join(given.values()) or "profile")
def test_of_mariadb(maria, ours, theirs, of_binlog):
    rows = [*binlog.ROWS, test_mariadb.MORE_ROW]
    result = of_binlog(maria, test_mariadb.MORE, rows, binlog.ROWS_COUNT + 1, ours, theirs)
    assert result(BINLOG_COLUMNS, MARIADB_VALUES) == ({}, {})


@pytest.mark.timeout(600)
@pytest.mark.parametrize(("ours", "theirs"), BINLOG_SETTINGS, ids=lambda given: " ".join(given.values()) or "profile")
def test_of_mysql(mysql, ours, theirs, of_binlog):
    rows = [*binlog.ROWS, *test_mysql.MORE_ROWS]
    result = of_binlog(mysql, test_mysql.MORE, rows, binlog.ROWS_COUNT + len(test_mysql.MORE_ROWS), ours, theirs)
    assert result(BINLOG_COLUMNS | MYSQL_COLUMNS, MYSQL_VALUES) == ({}, {})


@pytest.fixture
def of_binlog(both, consumed, kafka, maria_edges, connect):
    """Return a function that has both capture some work in MariaDB or MySQL; it returns one that says what is not intended."""

    def captured(database, more, rows, count, ours, theirs):
        database.execute("set time_zone = '+00:00'")
        database.execute(binlog.TYPES)
        database.execute(more)
        prefixes = [f"{product}-avro-{database.server.kind}-{database.name}" for product in ("ours", "theirs")]
        types, records = both(
            f"{database.name}.types",
            prefixes,
            lambda url: maria_edges(database, url, rest=chosen(ours)),
            binlog.connector(database, prefixes[1], kafka.bootstrap) | theirs,
            binlog.reads(database, connect, prefixes[1]),
            lambda: [database.execute(row) for row in rows],
            count,
        )
        topic = f"{prefixes[0]}.{database.name}.types"
        assert [key for key, _ in consumed(topic)] == [each.key for each in records[0]]
        if database.server.kind == "mysql":
            records = [test_mysql.with_parsed_json(each) for each in records]

        def compared(of_columns, of_values):
            intended = BINLOG_ENVELOPE | ADDITIONS | BINLOG_VALUES | BINLOG_AVRO | of_values
            return unintended(differing(types), of_columns), by_reason(differences(*records), intended)[0]

        return compared

    return captured


def chosen(ours):
    settings = {"profile": "debezium", "format": "avro"} | ours
    return "[records]\n" + "".join(f'{name} = "{value}"\n' for name, value in settings.items())
