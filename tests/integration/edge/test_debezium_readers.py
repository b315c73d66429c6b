"""A reader that was written for Debezium's records, and is not ours, reads a table's topic and has the table."""

from collections import Counter

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.kafka.flink import Flink
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

ACCOUNTS = {
    "id": "INT", "owner": "STRING", "balance": "DECIMAL", "opened": "DATE", "active": "BOOLEAN", "ratio": "DOUBLE",
    "seen": "TIMESTAMP_LTZ", "local": "TIMESTAMP", "photo": "BYTES", "total": "BIGINT",
}  # fmt: skip
TABLES = """
create table accounts (id int primary key, owner text, balance numeric(18,2), opened date, active bool, ratio float8,
                       seen timestamptz, local timestamp, photo bytea, total bigint);
create table transfers (id bigint primary key, note text);
alter table accounts replica identity full; alter table transfers replica identity full
"""
#: The rows as the reader's texts say them.
ROWS = """
select id::text, owner, balance::text, (opened - date '1970-01-01')::text, active::text, ratio::text,
       (extract(epoch from seen) * 1000)::bigint::text, to_char(local, 'YYYY-MM-DD"T"HH24:MI:SS.US'), encode(photo, 'hex'),
       total::text
from accounts
"""
WORK = [
    """insert into accounts select n, 'Ana "' || n || '" Łukasz', n * 1.25, date '2026-01-01' + n, n % 2 = 0, n / 8.0 + 0.1,
       timestamptz '2026-01-31 09:15:00.25+07' + n * interval '1 hour', timestamp '2026-01-31 09:15:00.123456',
       decode(lpad(to_hex(n), 8, '0'), 'hex'), n * 1000000007::bigint from generate_series(1, 200) n""",
    "insert into transfers select n, repeat('x', n) from generate_series(1, 50) n",
    """begin; update accounts set balance = balance - 1, owner = null where id % 3 = 0;
       insert into transfers values (99, ''); commit""",
    "delete from accounts where id % 5 = 0",
    "update accounts set id = id + 1000 where id % 7 = 0",
    "alter table accounts add column later int; insert into accounts (id, owner, later) values (5000, 'after the change', 1)",
]


def test_flink_reads_a_tables_topic_and_has_the_rows_of_the_database(database, edges, kafka, topic, inside, tmp_path):
    # given a stream with a topic for each table, and an edge that knows nothing of that
    name, source = topic(), "jakarta/bank"
    tables = {f"public.{table}": "delete" for table in ("accounts", "transfers")}
    settings = {"topic": name, "tables": tables}
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, **settings)
    file = load(path, BridgeFile)
    make(admin(file.kafka), file)
    bridge = inside(kafka.bootstrap, {source: [0]}, **settings)
    database.execute(TABLES)
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more="[records]\ntombstones = true\ntransactions = true")
    edge.init()

    # when rows come, change and go
    with edge.running():
        for statement in WORK:
            database.execute(statement)
        database.execute("select pg_logical_emit_message(true, 'headrace.marker', 'end')")
        eventually(lambda: b'"op":"m"' in b"".join(values(kafka, name)), 120, every=0.2, saying="all is in Kafka")

    # then Flink's own format makes the database's rows of the records
    with Flink() as flink:
        accounts = flink.rows(ACCOUNTS, values(kafka, f"{name}.public.accounts"))
        transfers = flink.rows({"id": "BIGINT", "note": "STRING"}, values(kafka, f"{name}.public.transfers"))
    assert accounts == Counter(database.execute(ROWS))
    assert transfers == Counter(database.execute("select id::text, note from transfers"))
    assert len(accounts) == 161


def values(kafka, topic):
    return [record.value for record in read_committed(kafka.bootstrap, topic)]
