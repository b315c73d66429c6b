"""Schema records: when they are written, and what of columns and names of any kind."""

import json

import pytest

from headrace.schema import TableSchema
from tests.unit.edge.postgres.accounts import DEFAULT, FULL, ID, NAME, NOTE, full_log
from tests.unit.edge.postgres.messages import (
    COMMIT,
    END,
    INT8,
    NUMERIC,
    TEXT,
    UNCHANGED,
    Column,
    Log,
    delete,
    insert,
    relation,
    update,
)


class TestSchemaRecords:
    @staticmethod
    def kinds(log):
        return ["change" if "op" in record.value else "schema" for record in log.records()]

    def test_it_goes_ahead_of_the_first_change_alone(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"), insert(2, "a", "b"))
        log.transaction(insert(3, "a", "b"), commit_lsn=COMMIT + 100, end=END + 100)
        assert self.kinds(log) == ["schema", "change", "change", "change"]

    def test_it_does_not_come_before_there_is_a_change(self):
        log = Log()
        log.transaction(DEFAULT)
        assert self.kinds(log) == []
        log.transaction(insert(1, "a", "b"), commit_lsn=COMMIT + 100, end=END + 100)
        assert self.kinds(log) == ["schema", "change"]

    def test_a_repeat_of_the_relation_repeats_nothing(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"), DEFAULT, insert(2, "a", "b"))
        assert self.kinds(log) == ["schema", "change", "change"]

    @pytest.mark.parametrize(
        ("altered", "row"),
        [
            (relation(ID, NAME, NOTE, Column("added")), (1, "a", "b", "c")),
            (relation(ID, NAME), (1, "a")),
            (relation(ID, Column("title"), NOTE), (1, "a", "b")),
            (relation(ID, Column("name", NUMERIC), NOTE), (1, "2.5", "b")),
            (relation(ID, Column("name", 1043, modifier=34), NOTE), (1, "a", "b")),
            (relation(ID, NAME._replace(key=True), NOTE), (1, "a", "b")),
            (relation(ID, NAME, NOTE, table="renamed"), (1, "a", "b")),
            (relation(ID, NAME, NOTE, schema="archive"), (1, "a", "b")),
        ],
        ids=["added", "dropped", "renamed", "type", "length", "key", "table renamed", "moved"],
    )
    def test_an_altered_table_is_told_again_within_a_transaction_too(self, altered, row):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"), altered, insert(*row))
        first, _, second, changed = log.records()
        assert (
            first.value["tableChanges"] != second.value["tableChanges"]
            or first.value["source"] != second.value["source"]
        )
        assert second.position == changed.position
        assert len(changed.value["after"]) == len(row)
        described = TableSchema.parse(json.dumps(second.value))
        assert [column.name for column in described.columns] == list(changed.value["after"])

    def test_an_identity_that_changes_nothing_in_the_record_is_not_told_but_obeyed(self):
        log = full_log()
        log.transaction(DEFAULT, insert(1, "a", "b"), FULL, update((1, "c", UNCHANGED), old=(1, "a", "b")))
        assert [record.value.get("after") for record in log.records()][1:] == [
            {"id": 1, "name": "a", "note": "b"},
            {"id": 1, "name": "c", "note": "b"},
        ]

    def test_it_can_be_parsed_by_who_reads_it(self):
        log = Log()
        log.transaction(relation(ID, Column("amount", NUMERIC, modifier=(12 << 16 | 2) + 4)), insert(1, "2.50"))
        schema, _ = log.records()
        described = TableSchema.parse(json.dumps(schema.value))
        assert (described.schema, described.table, described.key) == ("public", "accounts", ["id"])
        assert [(column.type_name, column.length, column.scale, column.optional) for column in described.columns] == [
            ("int8", None, None, False),
            ("numeric", 12, 2, True),
        ]


@pytest.mark.parametrize(
    "name", ["50%", "%b", "%(x)s", 'a "b"', "back\\slash", "Größe", "{x}", "it's", "line\nbreak", "漢字"]
)
def test_names_of_any_kind_are_kept(name):
    log = Log()
    log.transaction(
        relation(Column(name, INT8, key=True), NOTE, table=name, schema=name),
        insert(1, "a"),
        update((1, UNCHANGED), key=(2, None)),
        insert(1, None),
        delete(key=(1, None)),
    )
    schema, first, second, _, last = log.records()
    assert TableSchema.parse(json.dumps(schema.value)).key == [name]
    assert first.key == last.key == {name: 1}
    assert first.value["after"] == {name: 1, "note": "a"}
    assert (first.value["source"]["schema"], first.value["source"]["table"]) == (name, name)
    assert second.value["before"] == {name: 2}


def test_a_schema_without_a_name_is_the_catalog():
    log = Log()
    log.transaction(relation(ID, schema=""), insert(1))
    assert {record.value["source"]["schema"] for record in log.records()} == {"pg_catalog"}


def test_sixteen_hundred_columns():
    # given the most columns that PostgreSQL allows
    columns = [ID, *(Column(f"c{number}", TEXT if number % 2 else INT8) for number in range(1599))]
    row = [1, *(f'"{number}"' if number % 200 == 1 else number for number in range(1599))]
    plain = [1, *range(1599)]
    # when
    log = full_log()
    log.transaction(relation(*columns, identity="f"), insert(*plain), update(row, old=plain))
    # then
    inserted, updated = log.changes()
    assert list(inserted.value["after"].values()) == [1, *(str(n) if n % 2 else n for n in range(1599))]
    assert list(updated.value["after"].values()) == [
        1,
        *((f'"{n}"' if n % 200 == 1 else str(n)) if n % 2 else n for n in range(1599)),
    ]
    assert updated.value["before"] == inserted.value["after"]


def test_a_table_without_columns():
    log = Log()
    log.transaction(relation(identity="n"), insert())
    (inserted,) = log.changes()
    assert inserted.value["after"] == {}
