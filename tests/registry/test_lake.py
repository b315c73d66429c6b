"""A stream in Avro becomes the same rows in the lake as one in JSON: a source, its edge, a bridge, the registry, and verify."""

import json
from base64 import b64decode, b64encode

import pytest
from confluent_kafka import Producer

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import CorruptInput, NeedsOperator
from headrace.verify.postgres.database import SourceDatabase
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import replay
from spark_jobs.query import engine, published_tables
from spark_jobs.silver import load as silver
from spark_jobs.verify.lake import LakeAt
from spark_jobs.verify.verify import verify
from tests.bridge.bridge_file import bridge_file
from tests.integration.edge.snapshots import copy
from tests.integration.lake import test_lake_debezium_profile as of_debezium
from tests.kafka.reading import read_committed
from tests.lake.verify_sides import address
from tests.registry.test_registry import SOURCE, settings
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge", "tests.lake.fix_verify"]

pytestmark = pytest.mark.timeout(900)

TABLES = """
create table "every one" (
    id bigint, part text, flag bool, small int2, number int4, ratio float8, single float4, exact numeric(18,2), free numeric,
    day date, hour time, local timestamp, instant timestamptz, photo bytea, note jsonb, code uuid, large text, words text[],
    "odd name-1" text, primary key (id, part)
);
alter table "every one" alter large set storage external;
create table plain (id int primary key, a int);
create table logged (a int, b text)
"""
INSERTED = r"""insert into "every one"
    select n, 'é "' || n, n % 2 = 0, n, -n, n / 8.0 + 0.1, n / 3.0, n * 1.25, n * 1.125, date '2026-01-31' + n, '09:15:00.25',
           timestamp '1969-12-31 23:59:59.999999' + n * interval '1 hour', timestamptz '2026-01-31 09:15:00.25+07', '\x00ff',
           '{{"a": [1, "x"]}}', 'c0ffee00-0000-4000-8000-000000000001', repeat('x', 9000), array['a "b"', null], 'odd'
    from generate_series({}, {}) n"""
NAMES = ("every one", "plain", "logged")
FIRST = [
    INSERTED.format(1, 40),
    "insert into plain select n, n from generate_series(1, 40) n; insert into logged values (1, null), (-70000, 'x')",
]
SECOND = [
    """update "every one" set note = null, flag = null, free = 'NaN', ratio = 'Infinity' where id % 3 = 0""",
    """update "every one" set id = id + 1000, part = 'moved' where id % 4 = 0""",
    """update "every one" set day = 'infinity', local = '-infinity', instant = '0044-03-15 12:00:00+00 BC' where id = 5""",
    """delete from "every one" where id % 5 = 1""",
    "alter table plain add column later numeric; insert into plain values (100, 1, 2.5); update plain set a = 0 where id < 5",
    "truncate logged; insert into logged values (7, 'after')",
]
THIRD = [
    INSERTED.format(51, 60),
    "delete from plain where id < 3; alter table plain drop column a",
    "insert into plain values (200)",
]


@pytest.fixture
def carried(database, edges, kafka, topic, inside, tmp_path, registry):
    """A database whose changes a bridge with a registry takes; return what makes a lake, and what runs statements in a format."""

    def make_all(*, per_table, tables=TABLES, names=NAMES, records=""):
        name = topic()
        given = {"topic": name, "more": settings(registry.url)}
        if per_table:
            given["tables"] = {f"public.{table}": "delete" for table in names}
        made = load(bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0]}, **given), BridgeFile)
        make(admin(made.kafka), made)
        bridge = inside(kafka.bootstrap, {SOURCE: [0]}, **given)
        database.execute(tables)
        edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=f"[records]\n{records}\nformat = 'json'")
        edge.init()
        file, moved = edge.path.read_text(), []

        def run(format_, statements, ahead=None):
            edge.path.write_text(file.replace("format = 'json'", f"format = '{format_}'"))
            if ahead is not None:
                ahead(edge)
            with edge.running():
                for statement in statements:
                    database.execute(statement)
                moved.append(f"end {len(moved)}")
                database.execute(f"select pg_logical_emit_message(true, 'headrace.marker', '{moved[-1]}')")
                last = b64encode(moved[-1].encode())
                here = lambda: b"".join(record.value or b"" for record in read_committed(kafka.bootstrap, name))  # noqa: E731
                eventually(lambda: last in here(), 120, every=0.2, saying="all is in Kafka")

        return name, run

    return make_all


@pytest.fixture
def made_lake(kafka, tmp_path):
    def make_lake(name, url, *, per_table, section=True):
        file = tmp_path / f"lake-{section}.toml"
        file.write_text(
            f'[lake]\nroot = "lake"\n[kafka]\nbootstrap = "{kafka.bootstrap}"\nprefix = "headrace.{name}"\n'
            '[spark.settings]\n"spark.sql.shuffle.partitions" = "2"\n'
            + (f'[registry]\nurl = "{url}"\ntimeout_seconds = 2\n' if section else "")
            + f'[streams.bank]\ntopic = "{name}"\nsources = ["{SOURCE}"]\n'
            + "topic_per_table = true\n" * per_table
        )
        return load(file, LakeFile)

    return make_lake


@pytest.mark.parametrize("per_table", [False, True], ids=["one topic", "a topic for each table"])
def test_a_stream_in_avro_is_the_sources_rows(carried, made_lake, registry, spark, verified, per_table):
    name, run = carried(per_table=per_table)
    lake = made_lake(name, registry.url, per_table=per_table)
    # given a first load of Avro, then altered tables, then JSON, and Avro again
    run("avro", FIRST)
    bronze.load(spark, lake, "bank")
    assert silver.load(spark, lake, "bank").problems == {}
    run("avro", SECOND)
    run("json", THIRD)
    run("avro", [INSERTED.format(71, 75), """update "every one" set flag = true where id > 55"""])
    # when the registry has lost what was noted
    bronze.load(spark, lake, "bank")
    for subject in registry.subjects:
        if name in subject:
            registry.empty(subject)
    assert silver.load(spark, lake, "bank").problems == {}
    compared(spark, lake, verified)

    # then bronze is read again as it was, without the registry
    before = bronze_rows(spark, lake)
    replay.of_bronze(spark, made_lake(name, "http://127.0.0.1:1", per_table=per_table), "bank", None)
    assert bronze_rows(spark, lake) == before
    assert not any(key and key.startswith("\0") for key, _ in before)


def test_a_withheld_table_holds_its_source_where_it_was_and_all_goes_on_when_it_is_released(
    database, carried, made_lake, registry, kafka, spark, verified
):
    name, run = carried(per_table=True)
    lake = made_lake(name, registry.url, per_table=True)
    run("avro", FIRST)
    bronze.load(spark, lake, "bank")
    assert silver.load(spark, lake, "bank").problems == {}
    # given a table whose new schema the registry refuses, in transactions with a table that goes on
    subject = f"{name}.public.plain-value"
    registry.request("PUT", f"/config/{subject}", {"compatibility": "FORWARD"})
    run(
        "avro",
        [
            INSERTED.format(41, 41),
            "alter table plain alter column a type bigint",
            "begin; " + INSERTED.format(42, 42) + "; insert into plain values (42, 1::bigint << 40); commit",
            INSERTED.format(43, 43) + "; update plain set a = -1 where id < 5",
        ],
    )
    # when it is loaded meanwhile, twice
    for _ in range(2):
        bronze.load(spark, lake, "bank")
        assert silver.load(spark, lake, "bank").problems == {}
        # then what is published is the source before the first withheld change, and no transaction is half
        assert {row["id"] for row in rows(spark, lake, "every one").collect()} & {41, 42, 43} == {41}
        assert rows(spark, lake, "plain").count() == 40
    # and verification knows that the lake is not as far
    proven, verdicts = verification(spark, lake, database, lambda: run("avro", [INSERTED.format(44, 44)]))
    assert (proven, set(verdicts.values())) == (False, {"not equal", "equal"})
    # and all of it is there, once the registry takes the change
    registry.request("PUT", f"/config/{subject}", {"compatibility": "NONE"})
    released = lambda: not [each for each in read_committed(kafka.bootstrap, f"{name}.withheld") if each.value]  # noqa: E731
    eventually(released, 60, saying="the table is released")
    bronze.load(spark, lake, "bank")
    assert silver.load(spark, lake, "bank").problems == {}
    assert {row["id"] for row in rows(spark, lake, "every one").collect()} >= {41, 42, 43}
    compared(spark, lake, verified)
    proven, verdicts = verification(spark, lake, database, lambda: run("avro", [INSERTED.format(45, 45)]))
    assert (proven, set(verdicts.values())) == (True, {"equal"})


def test_a_stream_in_avro_of_debeziums_profile_is_the_sources_rows(carried, made_lake, registry, spark, verified):
    names = ("every", "dated")
    name, run = carried(per_table=True, tables=of_debezium.MADE, names=names, records='profile = "debezium"')
    lake = made_lake(name, registry.url, per_table=True)
    run("avro", of_debezium.WORK)
    bronze.load(spark, lake, "bank")
    assert silver.load(spark, lake, "bank").problems == {}
    run("avro", of_debezium.CHANGED)
    bronze.load(spark, lake, "bank")
    assert silver.load(spark, lake, "bank").problems == {}
    compared(spark, lake, verified, names)


FORMS = {
    "Avro, a topic for each table": ("avro", "", True),
    "CloudEvents, a topic for each table": ("json", "cloudevents = true\n", True),
    "CloudEvents in Avro": ("avro", "cloudevents = true\n", False),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_transaction_that_was_passed_over_is_on_record_and_its_table_needs_a_copy(
    database, carried, made_lake, registry, spark, verified, form
):
    format_, records, per_table = FORMS[form]
    limits = f'{records}largest_megabytes = 1\non_too_large = "stop"'
    tables = "create table plain (id int primary key, a text); create table logged (a int primary key)"
    name, run = carried(per_table=per_table, tables=tables, names=("plain", "logged"), records=limits)
    lake = made_lake(name, registry.url, per_table=per_table)

    def load_all():
        bronze.load(spark, lake, "bank")
        assert silver.load(spark, lake, "bank").problems == {}

    def pass_over(edge):
        with edge.running() as agent:
            database.execute("insert into plain values (1, 'a'), (2, 'b'); insert into logged values (1)")
            large = "update plain set a = repeat('x', 1100000) where id = 1"
            database.execute(f"begin; {large}; delete from plain where id = 2; commit")
            stopped = agent.ended()
        passed = edge.command("pass", *stopped.hint.split()[-2:], "--yes", "--json")
        assert passed.returncode == 0, passed.stderr

    # given a transaction that was passed over, with changes of another table ahead of it and behind it
    run(format_, ["insert into logged values (2); update plain set a = 'c' where id = 1"], ahead=pass_over)
    load_all()
    # then it is on record in bronze, other tables go on, and its own is what the log has of it, marked
    passed = [json.loads(value) for _, value in bronze_rows(spark, lake) if value and "headrace.passed" in value]
    (message,) = [value for value in passed if value.get("op") == "m"]
    assert json.loads(b64decode(message["message"]["content"]))["tables"] == ["public.plain"]
    assert [row["a"] for row in rows(spark, lake, "logged").orderBy("a").collect()] == [1, 2]
    assert [tuple(row) for row in rows(spark, lake, "plain").orderBy("id").collect()] == [(1, "c"), (2, "b")]

    # and a copy makes it right
    def copy_again(edge):
        with edge.running() as agent:
            marked = "public.plain needs a copy"
            eventually(lambda: any(it.startswith(marked) for it in agent.figures.warnings), saying=marked)
            copy(edge, "public.plain", replace=True)

    run(format_, [], ahead=copy_again)
    load_all()
    compared(spark, lake, verified, ("plain", "logged"))


def test_live_rows_are_there_in_avro_too(carried, made_lake, registry, spark):
    name, run = carried(per_table=False)
    lake = made_lake(name, registry.url, per_table=False)
    run("json", ["insert into plain values (1, 1)"])
    bronze.load(spark, lake, "bank")
    silver.load(spark, lake, "bank")
    run("avro", ["insert into plain values (2, 2)"])
    sql_engine = engine.SqlEngine(spark, lake)
    try:
        result = sql_engine.ask("SELECT id FROM silver_live.plain ORDER BY id").collect()
    finally:
        sql_engine.close()
    assert [row["id"] for row in result] == [1, 2]


def test_a_load_without_the_schemas_commits_nothing_and_says_what_to_do(carried, made_lake, registry, spark, verified):
    name, run = carried(per_table=False)
    run("avro", FIRST)
    for url, section, error, text in (
        ("", False, NeedsOperator, r"has no \[registry\]"),
        ("http://127.0.0.1:1", True, Exception, "does not answer"),
    ):
        with pytest.raises(error, match=text):
            bronze.load(spark, made_lake(name, url, per_table=False, section=section), "bank")
    lake = made_lake(name, registry.url, per_table=False)
    assert bronze.load(spark, lake, "bank").records > 80
    assert silver.load(spark, lake, "bank").problems == {}
    compared(spark, lake, verified)


def test_a_record_that_is_not_of_its_schema_is_named_by_its_place(carried, made_lake, registry, kafka, spark):
    name, run = carried(per_table=False)
    run("avro", ["insert into plain values (1, 1)"])
    lake = made_lake(name, registry.url, per_table=False)
    bronze.load(spark, lake, "bank")
    written = next(record for record in read_committed(kafka.bootstrap, name) if record.value[:1] == b"\0")
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, written.value[:-4] + b"secret", written.key, 0)
    producer.flush(30)
    with pytest.raises(CorruptInput, match=rf"topic {name}, partition 0, offset \d+: it is in Avro") as caught:
        bronze.load(spark, lake, "bank")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("is_there", [False, True], ids=["an id that is not there", "a schema that no edge writes"])
def test_a_schema_that_the_lake_cannot_use_stops_the_load(topic, made_lake, registry, kafka, spark, is_there):
    name, number = topic(), 999_999
    if is_there:
        foreign = {"type": "record", "name": "Envelope", "fields": [{"name": "op", "type": "string"}]}
        number = registry.request("POST", f"/subjects/{name}-value/versions", {"schema": json.dumps(foreign)})["id"]
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    producer.produce(name, b"\0" + number.to_bytes(4, "big") + b"\2c")
    producer.flush(30)
    lake = made_lake(name, registry.url, per_table=False)
    error, text = (CorruptInput, "was not written by an edge") if is_there else (NeedsOperator, "does not have")
    with pytest.raises(error, match=f"schema {number}.*{text}"):
        bronze.load(spark, lake, "bank")


def verification(spark, lake, database, then):
    """Return whether the lake is known to be as far as a snapshot after which something came, and what is found of each table."""
    side = LakeAt(spark, lake, "bank")
    try:
        with SourceDatabase.connect(SOURCE, address(database.dsn), placed=True) as source:
            then()
            reached = side.advance(SOURCE, source, seconds=0, on_progress=print)
            return reached.proven, {report.table: report.verdict for report in verify(SOURCE, source, side, ())}
    finally:
        side.close()


def compared(spark, lake, verified, names=NAMES):
    result = verified(**{f"public__{table}": rows(spark, lake, table) for table in names})
    assert set(result) == {f"public.{table}" for table in names}
    for report in result.values():
        assert (report.equal, report.differences, report.reasons) == (True, [], []), report


def rows(spark, lake, table):
    frame = published_tables.frame(spark, lake, "bank", f"public.{table}")
    return frame.select(*(f"`{name}`" for name in frame.columns if not name.startswith("_")))


def bronze_rows(spark, lake):
    frame = spark.read.format("delta").load(bronze.table_path(lake, "bank"))
    return [tuple(row) for row in frame.orderBy("topic", "partition", "offset").select("key", "value").collect()]
