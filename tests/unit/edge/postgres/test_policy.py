"""Records under a policy: the same from the generated code and from the exact one, named in the schema record."""

import pytest

from edge.records.column_policy import Policy
from headrace.configuration.edge import ColumnRule
from headrace.configuration.edge import Policy as Section
from headrace.configuration.secret import Secret
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    COMMIT,
    EPOCH,
    INT4,
    INT8,
    OID,
    UNCHANGED,
    Column,
    Log,
    delete,
    insert,
    relation,
    truncate,
    update,
)

PEOPLE = relation(
    Column("id", INT8, key=True),
    Column("email"),
    Column("age", INT4),
    Column("note"),
    Column("secret"),
    table="people",
)
OTHER = OID + 1


@pytest.fixture
def treated(monkeypatch):
    monkeypatch.setenv("HASH_KEY", "0123456789abcdef")
    rules = [
        ColumnRule(columns=["*.*.email", "*.*.id"], action="hash"),
        ColumnRule(columns=["*.*.age"], action="mask"),
        ColumnRule(columns=["*.*.note"], action="truncate", characters=3),
        ColumnRule(columns=["*.*.secret"], action="exclude"),
    ]
    return Policy(Section(columns=rules, hash_key=Secret("env:HASH_KEY"), exclude_tables=["audit.*"]))


def test_columns_are_treated_before_they_leave(treated):
    log = Log(policy=treated)
    row, without = (7, "ani@example.com", 44, 'a "note"', "s3cret"), (7, None, None, None, None)

    # Given a row in every form: whole, with nulls, with an unchanged column, which goes another way through the code.
    log.transaction(
        PEOPLE,
        insert(*row),
        insert(*without),
        update(row),
        update((7, "ani@example.com", 44, UNCHANGED, UNCHANGED)),
        update(row, key=without),
        delete(key=without),
    )
    reported, *changes = log.records()

    # Then nothing of it is readable, nulls are null, an excluded column is neither sent nor unchanged, and hashes agree.
    columns = reported.value["tableChanges"][0]["table"]["columns"]
    assert reported.value["tableChanges"][0]["table"]["excluded"] == ["secret"]
    assert [(column["name"], column["typeName"], column.get("policy")) for column in columns] == [
        ("id", "text", "hash"),
        ("email", "text", "hash"),
        ("age", "text", "mask"),
        ("note", "text", "truncate"),
    ]
    inserted, nulls, updated, partly, moved, deleted = (change.value for change in changes)
    after = inserted["after"]
    assert list(after) == ["id", "email", "age", "note"]
    assert (after["age"], after["note"], len(after["email"]), len(after["id"])) == ("****", 'a "', 64, 64)
    assert nulls["after"] == {"id": after["id"], "email": None, "age": None, "note": None}
    assert updated["after"] == moved["after"] == after
    assert (partly["after"], partly["unchanged"]) == ({key: after[key] for key in ("id", "email", "age")}, ["note"])
    assert [change.key for change in changes] == [{"id": after["id"]}] * 6
    assert deleted["before"] == moved["before"] == {"id": after["id"]}
    assert "s3cret" not in str(changes)
    assert "ani@" not in str(changes)


def test_excluded_tables_stay_and_positions_last(treated):
    log = Log(policy=treated)
    audit = relation(Column("id", INT8, key=True), schema="audit", table="log", oid=OTHER)

    # Given a transaction that ends in a table that stays, with an excluded change before as well.
    log.transaction(
        PEOPLE,
        audit,
        insert(1, oid=OTHER),
        insert(7, "a", 1, "n", "s"),
        delete(key=(1,), oid=OTHER),
        truncate(OTHER, OID),
        insert(2, oid=OTHER),
    )
    changes = log.changes()

    # Then the others have the positions that they would have without a policy, and the last of them says that it is.
    assert [(change.value["op"], change.position) for change in changes] == [
        ("c", Position(EPOCH, COMMIT, 1)),
        ("t", Position(EPOCH, COMMIT, 4)),
    ]
    assert ["last" in change.value["transaction"] for change in changes] == [False, True]
    assert {change.value["source"]["table"] for change in changes} == {"people"}


def test_a_transaction_of_excluded_tables_alone_leaves_nothing(treated):
    log = Log(policy=treated)
    log.transaction(relation(Column("id", INT8, key=True), schema="audit", table="log"), insert(1), insert(2))
    assert log.records() == []


def test_a_dot_in_a_name_is_no_end_of_the_policy():
    """E11: it stopped the edge as corrupt input, or the rule did not apply."""
    log = Log(policy=Policy(Section(columns=[ColumnRule(columns=["public.*.e*"], action="mask")])))
    log.transaction(relation(Column("id"), Column("e.mail"), table="a.b"), insert("1", "x"))

    (change,) = log.changes()
    assert change.value["after"] == {"id": "1", "e.mail": "****"}


def test_a_table_that_a_rule_cannot_apply_to_is_left_out_and_the_others_go_on(caplog):
    """S11: with `*.*.email` masked, a new table keyed by `email` ended the edge."""
    left_out = {}
    rules = Section(columns=[ColumnRule(columns=["*.*.email"], action="mask")])
    log = Log(policy=Policy(rules, left_out=left_out))
    log.transaction(
        relation(Column("email", key=True), table="newsletter"),
        insert("ani@example.com"),
        relation(Column("id", INT8, key=True), Column("email"), table="people", oid=OTHER),
        insert(1, "ani@example.com", oid=OTHER),
    )

    (change,) = log.changes()
    assert (change.value["source"]["table"], change.value["after"]) == ("people", {"id": 1, "email": "****"})
    assert list(left_out) == ["public.newsletter"]
    assert "public.newsletter is left out" in caplog.text
    assert "ani@" not in caplog.text
