"""Debezium's JDBC sink has the rows of the source from records in Avro, by Apicurio's converter; a table is altered meanwhile."""

import json
from pathlib import Path

import pytest

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.kafka.connect import Connect
from tests.registry.conftest import PYTHON
from tests.rules.waiting import eventually
from tests.servers import jars
from tests.servers.fix_stack import Database, served

pytest_plugins = ["tests.bridge.fix_bridge"]
SOURCE = "jakarta/bank"
EXAMPLE = Path(__file__).parents[2] / "examples" / "consumers" / "jdbc-sink-avro.json"
DDL = """
create table accounts (id int primary key, owner text not null, balance numeric(12,2), opened date, local timestamp, active bool,
                       ratio float8, photo bytea, big text);
alter table accounts alter column big set storage external;
alter table accounts replica identity full;
"""
RECORDS = 'format = "avro"\nkey_change = "delete-create"\ntombstones = true\ndecimal = "precise"\ntime = "adaptive"'
PROFILE = 'format = "avro"\nprofile = "debezium"'
#: Columns of types that have a form of their own in Debezium; for a `point` the sink needs PostGIS.
FORMS = """
alter table accounts add code uuid default 'c0ffee00-0000-4000-8000-000000000001', add ints int[] default '{1,null,-3}',
    add texts text[] default '{a,"b c",null}', add bits bit(5) default b'10110', add span interval default '3 days 04:05:06.7',
    add seen timestamptz default '2026-01-31 09:15:00.25+07', add clock timetz default '09:15:00.25+00',
    add doc jsonb default '{"a": 1}', add free numeric default 1.5
"""
WORK = [
    """insert into accounts select n, 'Łukasz ' || n, n * 1.25, date '2026-01-01' + n, timestamp '2026-01-31 09:15:00.123456',
       n % 2 = 0, n / 8.0 + 0.1, decode(lpad(to_hex(n), 8, '0'), 'hex'), repeat('x', 5000) from generate_series(1, 60) n""",
    "update accounts set balance = balance - 1, active = null where id % 3 = 0",
    "update accounts set id = id + 1000 where id % 7 = 0",
    "delete from accounts where id % 5 = 0",
    "alter table accounts add column later int",
    "insert into accounts (id, owner, later) values (5000, 'after the change', 1)",
]
ROWS = """select row_to_json(t)::text from (select id, owner, balance, opened, local, active, ratio, encode(photo, 'hex') photo,
          md5(big) big, later{} from accounts order by id) t"""
OF_FORMS = """, code, ints, texts, bits::text, extract(epoch from span) span, seen at time zone 'UTC' seen,
            clock at time zone 'UTC' clock, doc::jsonb, free::float8"""


@pytest.fixture
def warehouse(database):
    made = Database(database.postgres)
    yield made
    made.drop()


@pytest.fixture
def connect(kafka, tmp_path):
    environment, secrets = PYTHON.parents[1], "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
    settings = f"config.providers=directory\nconfig.providers.directory.class={secrets}"
    more = jars.avro_converter()
    yield from served(
        Connect(tmp_path / "connect", kafka.bootstrap, jars.SINK, environment=environment, more=more, settings=settings)
    )


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("records", "more", "columns"), [(RECORDS, "", ""), (PROFILE, FORMS, OF_FORMS)], ids=["forms", "profile"]
)
def test_the_sinks_table_is_that_of_the_source(
    database, edges, kafka, topic, inside, registry, warehouse, connect, tmp_path, records, more, columns
):
    # given a stream in Avro, and the example's sink over a table's topic
    settings = {
        "topic": topic(),
        "tables": {"public.accounts": "delete"},
        "more": f'\n[registry]\nurl = "{registry.url}"\n',
    }
    file = load(bridge_file(tmp_path, kafka.bootstrap, {SOURCE: [0]}, **settings), BridgeFile)
    make(admin(file.kafka), file)
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, **settings)
    database.execute(DDL + more)
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=f"[records]\n{records}\n")
    edge.init()
    (tmp_path / "password").write_text("unused")
    text = EXAMPLE.read_text().replace("/etc/headrace/secrets", str(tmp_path))
    sink = json.loads(text.replace("https://registry.example.org", registry.url.partition("/apis")[0])) | {
        "topics": f"{settings['topic']}.public.accounts",
        "connection.url": f"jdbc:postgresql://127.0.0.1:{warehouse.postgres.port}/{warehouse.name}",
        "connection.username": "postgres",
    }

    def same():
        assert connect.runs("sink")
        theirs, ours = ([row for (row,) in each.execute(ROWS.format(columns))] for each in (warehouse, database))
        assert theirs == ours, sorted(set(theirs) ^ set(ours))[:4]
        return bool(ours)

    try:
        with edge.running():
            for statement in WORK:
                database.execute(statement)
            connect.add("sink", sink)
            eventually(same, 120, every=1, saying="the rows are those of the source")
    finally:
        # Shown where the test fails.
        print(connect.log.read_text()[-6000:])
