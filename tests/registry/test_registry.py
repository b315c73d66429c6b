"""Records in Avro from a database to a consumer of others, and a registry that is away, refuses, or was emptied."""

from decimal import Decimal
from urllib.parse import urlsplit

from bridge.doctor import examine
from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.amqp.edge_double import Edge
from tests.bridge.bridge_file import bridge_file
from tests.integration.bridge.test_bridge_tables import change
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge", "tests.servers.fix_proxy"]

SOURCE = "jakarta/bank"
TABLES = """
create table accounts (id bigint primary key, owner text, balance numeric(18,2), active bool, ratio float8, seen timestamptz,
                       photo bytea, note jsonb);
alter table accounts replica identity full;
create table "my table" (a int, b text)
"""
WORK = [
    """insert into accounts select n, 'Ana "' || n || '" Łukasz', n * 1.25, n % 2 = 0, n / 8.0 + 0.1,
       timestamptz '2026-01-31 09:15:00.25+07' + n * interval '1 hour', decode(lpad(to_hex(n), 8, '0'), 'hex'), '{"a": 1}'
       from generate_series(1, 400) n""",
    "update accounts set balance = balance - 1, owner = null where id % 3 = 0",
    "update accounts set balance = 'NaN', ratio = 'NaN' where id = 4",
    "delete from accounts where id % 5 = 0",
    """insert into "my table" values (1, null), (-70000, 'x')""",
    "alter table accounts add column later int",
    "insert into accounts (id, owner, later) values (5000000000, 'after the change', 1)",
]
ROWS = """select id, owner, balance::text, active, ratio::text, to_char(seen at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS'),
                 encode(photo, 'hex'), note::text, later from accounts order by id"""


def settings(registry_url, **more):
    stream = "".join(f"{name} = {value!r}\n" for name, value in more.items())
    return f'{stream}\n[registry]\nurl = "{registry_url}"\ntimeout_seconds = 2\n'


def started(kafka, topic, inside, tmp_path, url, sources=(SOURCE,), tables=("accounts", "my table"), **more):
    """A bridge with a topic for each table; return it with the topic's name."""
    name = topic(partitions=len(sources))
    given = {
        "topic": name, "tables": {f"public.{table}": "delete" for table in tables}, "more": settings(url, **more),
    }  # fmt: skip
    owned = {source: [number] for number, source in enumerate(sources)}
    file = load(bridge_file(tmp_path, kafka.bootstrap, owned, **given), BridgeFile)
    make(admin(file.kafka), file)
    return inside(kafka.bootstrap, owned, **given), name


def test_a_consumer_of_others_has_the_rows_of_the_database(
    database, edges, kafka, topic, inside, tmp_path, registry, consumed
):
    bridge, name = started(kafka, topic, inside, tmp_path, registry.url, compatibility="BACKWARD")
    database.execute(TABLES)
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more='[records]\nformat = "avro"\ntransactions = true')
    edge.init()
    with edge.running():
        for statement in WORK:
            database.execute(statement)
        database.execute("select pg_logical_emit_message(true, 'headrace.marker', 'end')")
        eventually(lambda: b'"op":"m"' in b"".join(values(kafka, name)), 120, every=0.2, saying="all is in Kafka")

    # then all of the table's topic is read with the schemas that the bridge registered
    rows: dict = {}
    records = consumed(f"{name}.public.accounts")
    for key, value in records:
        assert key == {"id": (value["after"] or value["before"])["id"]}
        rows.pop(key["id"], None)
        if value["op"] != "d":
            rows[key["id"]] = value["after"]
    assert [as_selected(rows[number]) for number in sorted(rows)] == [selected(row) for row in database.execute(ROWS)]
    assert {value["op"] for _, value in records} == {"c", "u", "d"}
    assert [value["source"]["position"] for _, value in records] == sorted(
        value["source"]["position"] for _, value in records
    )
    assert [value["after"] for _, value in consumed(f"{name}.public.my_table")] == [
        {"a": 1, "b": None},
        {"a": -70000, "b": "x"},
    ]
    subjects = {f"{name}.public.accounts-{part}" for part in ("key", "value")} | {f"{name}.public.my_table-value"}
    assert subjects <= set(registry.subjects)
    assert registry.request("GET", f"/subjects/{name}.public.accounts-value/versions") == [1, 2]
    assert registry.request("GET", f"/config/{name}.public.accounts-value")["compatibilityLevel"] == "BACKWARD"
    # and what is about no table is JSON, in the stream's own topic
    assert all(value[:1] == b"{" for value in values(kafka, name))


def test_doctor_looks_at_the_registry(kafka, topic, tmp_path, registry):
    file = load(
        bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0]}, topic=topic(), more=settings(registry.url)), BridgeFile
    )
    (found,) = [each for each in examine(file) if each.check == "registry"]
    assert found.level == "ok"
    assert registry.url in found.text


def test_a_registry_that_is_away_holds_up_sources_of_avro_alone(
    database, edges, kafka, topic, inside, tmp_path, registry, proxies
):
    way = proxies("127.0.0.1", urlsplit(registry.url).port)
    url = registry.url.replace(urlsplit(registry.url).netloc, f"127.0.0.1:{way.port}")
    other = "london/bank"
    way.stop()
    bridge, name = started(kafka, topic, inside, tmp_path, url, (SOURCE, other), ("t", "accounts"))
    database.execute("create table t (id int primary key, a int)")
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more='[records]\nformat = "avro"')
    edge.init()
    peer = Edge(
        bridge.port,
        other,
        [change(other, 10 + number, 0, "accounts", number) for number in range(100)],
        sizes=lambda: 10,
    )
    with edge.running():
        database.execute("insert into t select n, n from generate_series(1, 1000) n")
        eventually(lambda: "does not answer" in reason(bridge), saying="the source waits")
        peer.start()
        peer.finish()
        assert values(kafka, f"{name}.public.t") == []
        way.start()
        eventually(lambda: len(values(kafka, f"{name}.public.t")) == 1000, 60, saying="the rows are in Kafka")
        # what is registered needs no registry any more
        way.stop()
        database.execute("update t set a = 0")
        eventually(lambda: len(values(kafka, f"{name}.public.t")) == 2000, 60, saying="the updates are in Kafka")


def test_a_registry_that_was_emptied_stops_the_records_that_hold_its_ids(
    database, edges, kafka, topic, inside, tmp_path, registry
):
    bridge, name = started(kafka, topic, inside, tmp_path, registry.url, tables=("t",))
    database.execute("create table t (id int primary key, a int)")
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more='[records]\nformat = "avro"')
    edge.init()
    with edge.running():
        database.execute("insert into t values (1, 1)")
        eventually(lambda: len(values(kafka, f"{name}.public.t")) == 1, saying="the first row is in Kafka")
        registry.empty(f"{name}.public.t-value")
        bridge.bridge.schemas.look()
        database.execute("insert into t values (2, 2)")
        eventually(lambda: bridge.figures(SOURCE)["state"] == "needs an operator", saying="the source waits")
        assert "has lost schema" in reason(bridge)
        assert len(values(kafka, f"{name}.public.t")) == 1


def test_a_bridge_without_a_registry_takes_no_records_in_avro_and_says_so(database, edges, kafka, topic, inside):
    name = topic()
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=name)
    database.execute("create table t (id int primary key, a int)")
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more='[records]\nformat = "avro"')
    edge.init()
    with edge.running():
        database.execute("insert into t values (1, 1)")
        eventually(lambda: "has no [registry]" in reason(bridge), saying="the source waits")
    assert values(kafka, name) == []


def reason(bridge):
    return bridge.bridge.registry.states[SOURCE].figures.reason


def values(kafka, topic):
    return [record.value for record in read_committed(kafka.bootstrap, topic)]


def selected(row):
    number, owner, balance, active, ratio, seen, photo, note, later = row
    return (number, owner, balance and Decimal(balance).as_tuple(), active, ratio, seen, photo, note, later)


def as_selected(row):
    seen = row["seen"] and f"{row['seen'].rstrip('Z').ljust(19)}"
    seen = seen and (seen if "." in seen else f"{seen}.").ljust(23, "0")
    ratio = None if row["ratio"] is None else "NaN" if row["ratio"] != row["ratio"] else f"{row['ratio']:.17g}"
    ratio = ratio if ratio in {None, "NaN"} else repr(float(ratio)).removesuffix(".0")
    balance = row["balance"] and Decimal(row["balance"]).as_tuple()
    rest = (row["photo"], row["note"], row.get("later"))
    return (row["id"], row["owner"], balance, row["active"], ratio, seen, *rest)
