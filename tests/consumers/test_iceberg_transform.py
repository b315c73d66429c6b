"""Iceberg's DebeziumTransform makes of a table's records the changes that lead to the source's rows."""

import json

import pytest

from tests.consumers.transform import Transform
from tests.kafka.reading import read_committed

DDL = """
create table accounts (id int primary key, owner text not null, balance numeric(12,2), opened date, tags text[], big text);
alter table accounts alter column big set storage external;
alter table accounts replica identity full
"""
WORK = [
    """insert into accounts select n, 'Łukasz ' || n, n * 1.25, date '2026-01-01' + n, array['a', null], repeat('x', 5000)
       from generate_series(1, 40) n""",
    "update accounts set balance = balance - 1, tags = null where id % 3 = 0",
    "update accounts set id = id + 1000 where id % 7 = 0",
    "delete from accounts where id % 5 = 0",
    "alter table accounts add column later int",
    "insert into accounts (id, owner, later) values (5000, 'after the change', 1)",
]
ROWS = """select row_to_json(t)::text from (select id, owner, balance, opened - date '1970-01-01' opened, tags, big, later
          from accounts order by id) t"""


@pytest.mark.timeout(300)
def test_the_changes_lead_to_the_rows_of_the_source(stream):
    running = stream(DDL, ["accounts"], 'profile = "debezium"')
    running.work(WORK, "1")
    topic = running.topic_of("accounts")
    schemas = running.schema("accounts", "--connect", "--key"), running.schema("accounts", "--connect")

    rows = {}
    with Transform("org.apache.iceberg.connect.transforms.DebeziumTransform", *schemas) as transform:
        for record in read_committed(running.bootstrap, topic):
            change = transform.apply(topic, record)
            if change is None:
                continue
            cdc = change.pop("_cdc")
            key = cdc["key"]["id"]
            assert cdc["target"] == "public.accounts"
            if cdc["op"] == "D":
                del rows[key]
            else:
                assert (cdc["op"] == "U") == (key in rows)
                rows[key] = change
    expected = [json.loads(row) for (row,) in running.database.execute(ROWS)]
    assert [rows[key] for key in sorted(rows)] == expected
