"""The policy at a real database: nothing that it keeps back leaves, whether the log or a snapshot brings it."""

import pytest

from edge.doctor.examine import examine
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import ask, ended
from tests.rules.waiting import eventually

_POLICY = """
tables = ["public.people", "public.audit"]
row_filters = { "public.people" = "country = 'ID'" }

[policy]
exclude_tables = ["*.audit"]
hash_key = "env:HASH_KEY"

[[policy.columns]]
columns = ["*.people.id", "*.people.parent"]
action = "hash"

[[policy.columns]]
columns = ["*.people.passport"]
action = "exclude"
"""


@pytest.fixture
def people(edges, database, interconnect, monkeypatch):
    monkeypatch.setenv("HASH_KEY", "0123456789abcdef")
    database.execute("create table audit (id int primary key)")
    database.execute(
        "create table people (id int, country text, parent int, passport text, primary key (id, country));"
        "insert into people values (1, 'ID', null, 'X1'), (2, 'UK', 1, 'X2')"
    )
    made = edges(database, interconnect.url, more=_POLICY)
    made.init()
    return made


def test_snapshot_and_stream_keep_back_the_same(people, database, interconnect):
    with people.running():
        # Given rows of before, which a snapshot brings, and changes after it.
        ask(people, "public.people")
        ended(people, "public.people")
        database.execute("insert into audit values (1)")
        database.execute("insert into people values (3, 'ID', 1, 'X3'), (4, 'UK', 1, 'X4')")
        arrive(interconnect, 2)
        # When the excluded table is asked for, then the snapshot says why not.
        ask(people, "public.audit")
        eventually(lambda: "leave the region" in (people.folder / "state").joinpath("snapshot.json").read_text())

    # Then of the rows only those of the filter came, hashed alike, and the child joins its parent.
    read, inserted = interconnect.changes
    assert [change["op"] for change in (read, inserted)] == ["r", "c"]
    assert inserted["after"]["parent"] == read["after"]["id"]
    assert len(read["after"]["id"]) == 64
    assert [list(change["after"]) for change in (read, inserted)] == [["id", "country", "parent"]] * 2
    assert [key for _, key, value in interconnect.records if "op" in value] == [
        {"id": change["after"]["id"], "country": "ID"} for change in (read, inserted)
    ]


def test_a_table_that_a_rule_cannot_apply_to_and_rules_without_effect_are_reported(edges, database, interconnect):
    """S10, S11: a rule with a slip was reported nowhere, and a table keyed by a masked column ended the edge."""
    database.execute("create table people (id int primary key, email text)")
    rules = '[policy]\nexclude_tables = ["public.salary"]\n[[policy.columns]]\ncolumns = ["*.*.email", "public.people.nmae"]\n'
    edge = edges(database, interconnect.url, rest=rules + 'action = "mask"\n')
    edge.init()
    with edge.running() as running:
        database.execute(
            "create table newsletter (email text primary key); insert into newsletter values ('ani@example.com')"
        )
        database.execute("insert into people values (1, 'ani@example.com')")
        arrive(interconnect, 1)
        eventually(lambda: {"policy", "left out by policy"} <= running.figures.warned.keys(), saying="status warns")
        assert running.figures.warned["policy"].endswith(": public.salary, public.people.nmae")
        assert "public.newsletter is left out" in running.figures.warned["left out by policy"]
        ask(edge, "public.newsletter")
        plan = (edge.folder / "state").joinpath("snapshot.json")
        eventually(lambda: plan.exists() and "public.newsletter is left out" in plan.read_text())
        findings = [each for each in examine(edge.config) if each.check == "policy"]

    assert [each["after"] for each in interconnect.changes] == [{"id": 1, "email": "****"}]
    assert [each.level for each in findings] == ["wrong", "warning"]
    assert "public.newsletter is left out" in findings[0].text
    assert findings[1].text.endswith(": public.salary, public.people.nmae")


_PARTITIONED = """
[policy]
exclude_tables = ["public.salaries"]
hash_key = "env:HASH_KEY"

[[policy.columns]]
columns = ["public.customers.email"]
action = "hash"
"""


def test_the_policy_of_a_partitioned_table_holds_for_its_partitions(edges, database, interconnect, monkeypatch):
    """G4: partitions are published under their own names, which no rule has."""
    monkeypatch.setenv("HASH_KEY", "0123456789abcdef")
    for table in ("customers", "salaries"):
        database.execute(
            f"create table {table} (id int, day int, email text, primary key (id, day)) partition by list (day);"
            f"create table {table}_1 partition of {table} for values in (1) partition by list (id);"
            f"create table {table}_1_1 partition of {table}_1 default;"
            f"create table {table}_2 partition of {table} for values in (2);"
            f"insert into {table} values (1, 1, 'ani@example.com'), (1, 2, 'budi@example.com')"
        )
    edge = edges(database, interconnect.url, more=_PARTITIONED)
    edge.init()
    with edge.running():
        ask(edge, "public.customers_1_1", "public.customers_2")
        ended(edge, "public.customers_2")
        database.execute("insert into salaries values (2, 1, 'x@example.com')")
        database.execute("insert into customers values (2, 1, 'cici@example.com'), (2, 2, 'dodi@example.com')")
        arrive(interconnect, 4)
        ask(edge, "public.salaries_2")
        eventually(lambda: "leave the region" in (edge.folder / "state").joinpath("snapshot.json").read_text())
        # A partition that is none any more keeps the rules of what it was a partition of.
        database.execute(
            "alter table customers detach partition customers_2; alter table customers_2 add column more int"
        )
        database.execute("insert into customers_2 values (3, 2, 'edi@example.com')")
        arrive(interconnect, 5)
    # What became of a table that was dropped before its changes were read is not known.
    database.execute(
        "insert into salaries values (3, 1, 'x@example.com'); insert into customers values (4, 1, 'fani@example.com')"
    )
    database.execute("drop table salaries; drop table customers")
    database.execute("create table t (id int primary key); insert into t values (1)")
    with edge.running():
        arrive(interconnect, 6)

    sent = [(change["source"]["table"], change["after"].get("email")) for change in interconnect.changes]
    assert sorted({table for table, _ in sent}) == ["customers_1_1", "customers_2", "t"]
    assert [len(email) for _, email in sent[:5]] == [64] * 5
    assert sent[5] == ("t", None)
