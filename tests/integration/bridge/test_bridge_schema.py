"""`headrace bridge schema`: a table's newest schema in Kafka, as other tools take it."""

import json
import subprocess
import sys

from jsonschema import Draft202012Validator

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from tests.bridge.bridge_file import bridge_file
from tests.kafka.reading import values
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]
ACCOUNTS = """
create table accounts (id int primary key, owner varchar(20), balance numeric(12, 2), seen timestamptz, photo bytea,
                       ratio float8);
create table other (id int primary key)
"""


def schema(path, *arguments):
    done = subprocess.run(
        [sys.executable, "-m", "headrace", "bridge", "schema", *arguments, "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


def test_a_tables_newest_schema_is_printed_in_every_form(database, edges, kafka, topic, inside, tmp_path):
    # given a table that was altered between two of its rows
    name, source = topic(), "jakarta/bank"
    path = bridge_file(tmp_path, kafka.bootstrap, {source: [0]}, topic=name)
    make(admin((file := load(path, BridgeFile)).kafka), file)
    bridge = inside(kafka.bootstrap, {source: [0]}, topic=name)
    database.execute(ACCOUNTS)
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}")
    edge.init()
    with edge.running():
        database.execute("insert into accounts values (1, 'Ana', 1.5, now(), '\\x00', 'NaN')")
        database.execute("alter table accounts add column later int; insert into accounts (id, later) values (2, 7)")
        changes = eventually(lambda: written(kafka, name, 2), 120, saying="both rows are in Kafka")

    # then every form has the added column, and is what the tool takes
    code, out, err = schema(path, "public.accounts", "--sql")
    assert (code, err) == (0, "")
    scratch = out.replace('"public"."accounts"', "copied")
    database.execute(scratch)
    assert database.execute(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'copied'::regclass "
        "and attnum > 0 order by attnum"
    ) == database.execute(
        "select attname, format_type(atttypid, atttypmod) from pg_attribute where attrelid = 'accounts'::regclass "
        "and attnum > 0 order by attnum"
    )
    validator = Draft202012Validator(json.loads(schema(path, "public.accounts", "--json-schema")[1]))
    assert [list(validator.iter_errors(change)) for change in changes] == [[], []]
    assert not validator.is_valid(changes[0] | {"after": {"id": "one"}})
    connect = json.loads(schema(path, "public.accounts", "--connect")[1])
    assert [field["field"] for field in connect["fields"][1]["fields"]][-1] == "later"
    assert json.loads(schema(path, "public.accounts", "--connect", "--key")[1])["name"] == f"{name}.public.accounts.Key"
    assert json.loads(schema(path, "public.accounts", "--avro")[1])["name"] == "Envelope"
    # and what cannot be answered says why
    code, _, err = schema(path, "public.other", "--sql")
    assert code == 3
    assert "no schema record of table 'public.other' is in Kafka" in err
    assert schema(path, "public.accounts")[0] == 2


def written(kafka, topic, count):
    result = [json.loads(value) for value in values(kafka.bootstrap, topic) if value]
    changes = [each for each in result if each.get("op") == "c"]
    return changes if len(changes) == count else None
