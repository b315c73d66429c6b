"""What real tables look like when they arrive: every type, every replica identity, tables that change while they are read."""

import json
from contextlib import closing

import pytest

from edge.doctor.examine import examine
from headrace.errors import ConfigurationError
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy
from tests.rules.waiting import eventually

COLUMNS = [
    # (type, literal, what arrives)
    ("smallint", "-32768", -32768),
    ("integer", "2147483647", 2147483647),
    ("bigint", "-9223372036854775808", -9223372036854775808),
    ("oid", "4294967295", 4294967295),
    ("real", "0.1", 0.1),
    ("double precision", "1e-300", 1e-300),
    ("double precision", "'NaN'", "NaN"),
    ("double precision", "'-Infinity'", "-Infinity"),
    ("numeric", "12345678901234567890.123456789", "12345678901234567890.123456789"),
    ("numeric(12,2)", "12.5", "12.50"),
    ("numeric", "'NaN'", "NaN"),
    ("money", "1.5", "$1.50"),
    ("boolean", "true", True),
    ("boolean", "false", False),
    ("date", "'2026-01-31'", "2026-01-31"),
    ("date", "'infinity'", "infinity"),
    ("date", "'0044-03-15 BC'", "0044-03-15 BC"),
    ("time", "'09:15:00.25'", "09:15:00.25"),
    ("time with time zone", "'09:15:00.25+07'", "09:15:00.25+07"),
    ("timestamp", "'2026-01-31 09:15:00.25'", "2026-01-31T09:15:00.25"),
    ("timestamp", "'infinity'", "infinity"),
    ("timestamptz", "'2026-01-31 16:15:00.25+07'", "2026-01-31T09:15:00.25Z"),
    ("timestamptz", "'-infinity'", "-infinity"),
    ("interval", "'1 year 2 months 3 days 04:05:06.7'", "1 year 2 mons 3 days 04:05:06.7"),
    ("bytea", r"'\x00ff10'", "AP8Q"),
    ("bytea", "''", ""),
    ("text", "''", ""),
    (
        "text",
        "E'tab\\t, quote \", backslash \\\\, line\\n, bell \\007'",
        'tab\t, quote ", backslash \\, line\n, bell \x07',
    ),
    ("text", "'Jalan Sudirman №1 — 雅加达 🛶'", "Jalan Sudirman №1 — 雅加达 🛶"),
    ("varchar(20)", "'short'", "short"),
    ("char(5)", "'ab'", "ab   "),
    ("uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    ("json", """'{"a": [1, "x"]}'""", '{"a": [1, "x"]}'),
    ("jsonb", """'{"a": [1, "x"]}'""", '{"a": [1, "x"]}'),
    ("integer[]", "'{1,NULL,3}'", "{1,NULL,3}"),
    ("text[]", """'{a,"b c",NULL}'""", '{a,"b c",NULL}'),
    ("inet", "'10.0.0.1/8'", "10.0.0.1/8"),
    ("bit(3)", "B'101'", "101"),
    ("int4range", "'[1,5)'", "[1,5)"),
    ("point", "'(1,2)'", "(1,2)"),
    ("mood", "'calm'", "calm"),
    ("positive", "7", 7),
    ("pair", "ROW(1,'x')", "(1,x)"),
    ("text", "null", None),
]


@pytest.mark.parametrize("identity", ["default", "full"])
def test_every_type_arrives_as_documented(edge, database, interconnect, identity):
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(COLUMNS))
    values = ", ".join(literal for _, literal, _ in COLUMNS)
    database.execute("create type mood as enum ('calm', 'busy'); create domain positive as int check (value > 0)")
    database.execute("create type pair as (a int, b text)")
    database.execute(f"create table every (id int primary key, {columns})")
    database.execute(f"alter table every replica identity {identity}")
    with edge.running():
        database.execute(f"insert into every values (1, {values})")
        database.execute("update every set c0 = 1")
        database.execute("delete from every")
        arrive(interconnect, 3)

    inserted, updated, deleted = interconnect.changes
    row = {"id": 1} | {f"c{number}": expected for number, (_, _, expected) in enumerate(COLUMNS)}
    assert inserted["after"] == row
    assert updated["after"] == row | {"c0": 1}
    assert updated["before"] == (row if identity == "full" else None)
    assert deleted["before"] == (row | {"c0": 1} if identity == "full" else {"id": 1})
    assert [key for _, key, value in interconnect.records if "op" in value] == [{"id": 1}] * 3


def test_schema_record_tells_types_as_the_source_names_them(edge, database, interconnect):
    database.execute(
        "create type mood as enum ('calm'); create table s (b int, a varchar(9), m mood, n numeric(7,3), primary key (a, b))"
    )
    with edge.running():
        database.execute("insert into s values (1, 'x', 'calm', 1)")
        arrive(interconnect, 1)

    table = interconnect.records[0][2]["tableChanges"][0]["table"]
    assert sorted(table["primaryKeyColumnNames"]) == ["a", "b"]
    reported = [(column["name"], column["typeName"], column["length"], column["scale"]) for column in table["columns"]]
    assert reported == [
        ("b", "int4", None, None),
        ("a", "varchar", 9, None),
        ("m", "mood", None, None),
        ("n", "numeric", 7, 3),
    ]


def test_key_of_a_table_with_full_identity_is_its_primary_key_in_key_order(edge, database, interconnect):
    database.execute(
        "create table k (b int, a int, note text, primary key (a, b) include (note)); alter table k replica identity full"
    )
    with edge.running():
        database.execute("insert into k values (2, 1, 'x')")
        database.execute("update k set note = 'y'")
        database.execute("delete from k")
        arrive(interconnect, 3)

    assert [json.dumps(key) for _, key, value in interconnect.records if "op" in value] == ['{"a": 1, "b": 2}'] * 3


def test_unchanged_large_value_is_named_with_default_identity_and_filled_in_with_full(edge, database, interconnect):
    database.execute("create table big (id int primary key, n int, body text)")
    database.execute("alter table big alter body set storage external")
    with edge.running():
        database.execute("insert into big values (1, 1, repeat('x', 10000))")
        database.execute("update big set n = 2")
        database.execute("alter table big replica identity full")
        database.execute("update big set n = 3")
        arrive(interconnect, 3)

    _, default, full = interconnect.changes
    assert default["after"] == {"id": 1, "n": 2}
    assert default["unchanged"] == ["body"]
    assert full["after"] == {"id": 1, "n": 3, "body": "x" * 10000}
    assert "unchanged" not in full


def test_changed_key_arrives_with_the_old_one_before(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1, 'x')")
        database.execute("update t set id = 2")
        arrive(interconnect, 2)

    assert interconnect.changes[1]["before"] == {"id": 1}
    assert interconnect.changes[1]["after"] == {"id": 2, "note": "x"}


def test_table_altered_between_and_within_transactions_tells_its_new_schema_first(edge, database, interconnect):
    with edge.running():
        database.execute("insert into t values (1, 'x')")
        database.execute("alter table t add extra int")
        database.execute("insert into t values (2, 'x', 5)")
        database.execute(
            "begin; insert into t values (3, 'x', 5); alter table t drop note; insert into t values (4, 6); commit"
        )
        arrive(interconnect, 4)

    reported = [
        [column["name"] for column in value["tableChanges"][0]["table"]["columns"]]
        if "tableChanges" in value
        else value["after"]
        for _, _, value in interconnect.records
    ]
    assert reported == [
        ["id", "note"],
        {"id": 1, "note": "x"},
        ["id", "note", "extra"],
        {"id": 2, "note": "x", "extra": 5},
        {"id": 3, "note": "x", "extra": 5},
        ["id", "extra"],
        {"id": 4, "extra": 6},
    ]


def test_partition_arrives_as_the_table_that_it_is(edge, database, interconnect):
    database.execute("create table p (id int primary key) partition by range (id)")
    database.execute("create table p1 partition of p for values from (0) to (10)")
    with edge.running():
        database.execute("insert into p values (1)")
        arrive(interconnect, 1)

    assert interconnect.changes[0]["source"]["table"] == "p1"


def test_names_that_need_quotes_and_many_columns_arrive(edge, database, interconnect):
    columns = ", ".join(f'"c ""{number}""" int' for number in range(1599))
    database.execute(f'create schema "Sch""ema"; create table "Sch""ema"."Ta ble" (id int primary key, {columns})')
    with edge.running():
        database.execute('insert into "Sch""ema"."Ta ble" (id, "c ""1598""") values (1, 5)')
        arrive(interconnect, 1)

    (change,) = interconnect.changes
    assert (change["source"]["schema"], change["source"]["table"]) == ('Sch"ema', "Ta ble")
    assert len(change["after"]) == 1600
    assert change["after"]['c "1598"'] == 5


def test_names_of_64_characters_of_four_bytes_are_cut_as_the_server_cuts_them(edges, database, interconnect):
    """A name has at most 63 bytes at the server, whole characters alone."""
    name, kept = "\U0001f6f6" * 64, "\U0001f6f6" * 15
    database.execute(f'create table "{name}" ("{name}" int primary key, note text)')
    with pytest.raises(ConfigurationError, match="the server cuts names to 63 bytes"):
        edges(database, interconnect.url, more=f'tables = ["public.{name}"]').init()
    edge = edges(database, interconnect.url, more=f'tables = ["public.{kept}"]')
    edge.init()
    assert [each.text for each in examine(edge.config) if each.level == "wrong"] == []
    with edge.running():
        database.execute(f"""insert into "{name}" values (1, 'streamed')""")
        arrive(interconnect, 1)
        copy(edge, f"public.{kept}")
        arrive(interconnect, 2)

    assert [change["op"] for change in interconnect.changes] == ["c", "r"]
    assert {change["source"]["table"] for change in interconnect.changes} == {kept}
    assert [change["after"] for change in interconnect.changes] == [{kept: 1, "note": "streamed"}] * 2


def test_rolled_back_work_and_savepoints_leave_only_what_was_committed(edge, database, interconnect):
    with edge.running():
        database.execute("begin; insert into t values (1); rollback")
        database.execute(
            "begin; insert into t values (2); savepoint a; insert into t values (3); rollback to a;"
            " insert into t values (4); commit"
        )
        arrive(interconnect, 2)
        eventually(lambda: edge.confirmed() > 0)

    assert [change["after"]["id"] for change in interconnect.changes] == [2, 4]
    assert [change["transaction"]["total_order"] for change in interconnect.changes] == [1, 2]
    assert interconnect.changes[1]["transaction"]["last"] is True


def test_transactions_that_overlap_arrive_in_commit_order(edge, database, interconnect):
    with edge.running(), closing(database.connect()) as one, closing(database.connect()) as other:
        first, second = one.cursor(), other.cursor()
        first.execute("begin; insert into t values (1)")
        second.execute("begin; insert into t values (2); commit")
        first.execute("insert into t values (3); commit")
        arrive(interconnect, 3)

    assert [change["after"]["id"] for change in interconnect.changes] == [2, 1, 3]
