"""Debezium's JDBC sink has the rows of the source's database, from the envelope and behind ExtractNewRecordState."""

import pytest

from tests.consumers.environment import example
from tests.rules.waiting import eventually

DDL = """
create table accounts (id int primary key, owner text not null, balance numeric(12,2), opened date, seen timestamptz,
                       local timestamp, active bool, ratio float8, photo bytea, big text);
alter table accounts alter column big set storage external;
alter table accounts replica identity full;
create table pairs (a int, b text, c text, primary key (a, b));
"""
ROWS = "select row_to_json(t)::text from (select {columns} from {table} order by 1, 2) t"
ACCOUNTS = """id, owner, balance, opened, seen at time zone 'UTC' seen, local, active, ratio, encode(photo, 'hex') photo,
              md5(big) big"""
WORK = [
    """insert into accounts select n, 'Łukasz ' || n, n * 1.25, date '2026-01-01' + n,
       timestamptz '2026-01-31 09:15:00.25+07' + n * interval '1 hour', timestamp '2026-01-31 09:15:00.123456', n % 2 = 0,
       n / 8.0 + 0.1, decode(lpad(to_hex(n), 8, '0'), 'hex'), repeat('x', 5000) from generate_series(1, 60) n""",
    "insert into pairs select n, 'b' || n, 'c' from generate_series(1, 20) n",
    "begin; update accounts set balance = balance - 1, active = null where id % 3 = 0; update pairs set c = null; commit",
    "update accounts set id = id + 1000 where id % 7 = 0",
    "update pairs set b = b || ' changed' where a % 2 = 0",
    "delete from accounts where id % 5 = 0",
    "delete from pairs where a = 3",
]
AFTER = [
    "alter table accounts add column later int",
    "insert into accounts (id, owner, later) values (5000, 'after the change', 1)",
    "update accounts set later = 2 where id = 1",
    "truncate pairs",
    "insert into pairs values (99, 'after the truncate', null)",
]


def rows(database, table, columns):
    return [row for (row,) in database.execute(ROWS.format(table=table, columns=columns))]


def settings(name, stream, target, folder, table):
    """An example's settings, for what is here."""
    for kind, options in (("key", ["--key"]), ("value", [])):
        (folder / f"accounts-{kind}.json").write_text(stream.schema(table, "--connect", *options))
    (folder / "password").write_text("unused")
    result = example(
        name,
        topics=stream.topic_of(table),
        connection__url=f"jdbc:postgresql://127.0.0.1:{target.postgres.port}/{target.name}",
        connection__username="postgres",
    )
    return {key: value.replace("/etc/headrace/schemas", str(folder)) for key, value in result.items()}


@pytest.mark.timeout(900)
def test_the_sinks_tables_are_those_of_the_source(stream, connect, warehouse, tmp_path):
    # given a stream in Debezium's profile, and sinks over two of its topics
    running = stream(DDL, ["accounts", "pairs"], 'profile = "debezium"\ntruncates = true')
    running.work(WORK, "1")
    target, unwrapped = warehouse(), warehouse()
    folders = {name: tmp_path / name for name in ("accounts", "pairs", "unwrapped")}
    for folder in folders.values():
        folder.mkdir()
    direct, other, behind = (f"{running.topic}-{name}" for name in folders)
    connect.add(direct, settings("jdbc-sink", running, target, folders["accounts"], "accounts"))
    connect.add(other, settings("jdbc-sink", running, target, folders["pairs"], "pairs"))
    connect.add(behind, settings("extract-new-record-state", running, unwrapped, folders["unwrapped"], "accounts"))

    def same(one, table, columns, name):
        assert connect.runs(name)
        theirs, ours = rows(one, table, columns), rows(running.database, table, columns)
        assert theirs == ours, sorted(set(theirs) ^ set(ours))[:4]
        return True

    try:
        # then they have its rows after inserts, updates, changed keys and deletes
        eventually(lambda: same(target, "accounts", ACCOUNTS, direct), 90, every=1)
        eventually(lambda: same(target, "pairs", "a, b, c", other), 90, every=1)
        eventually(lambda: same(unwrapped, "accounts", ACCOUNTS, behind), 90, every=1)

        # and, stopped while a table is altered and given its new schema, after that and a truncate
        for name in (direct, behind):
            connect.pause(name)
        running.work(AFTER, "2")
        for name in ("accounts", "unwrapped"):
            (folders[name] / "accounts-value.json").write_text(running.schema("accounts", "--connect"))
        for name in (direct, behind):
            connect.resume(name)
        eventually(lambda: same(target, "accounts", f"{ACCOUNTS}, later", direct), 90, every=1)
        eventually(lambda: same(target, "pairs", "a, b, c", other), 90, every=1)
        eventually(lambda: same(unwrapped, "accounts", f"{ACCOUNTS}, later", behind), 90, every=1)
    finally:
        # Shown where the test fails.
        print(connect.log.read_text()[-6000:])
