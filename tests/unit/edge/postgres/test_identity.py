"""What a replica identity tells: keys, old rows, and columns that the log did not carry."""

import pytest

from tests.unit.edge.postgres.accounts import DEFAULT, FULL, ID, NAME, NOTE, full_log
from tests.unit.edge.postgres.messages import UNCHANGED, Column, Log, delete, insert, relation, update


class TestKeys:
    def test_full_identity_takes_its_key_from_whoever_knows_it_in_key_order(self):
        log = Log(key_of=lambda _: ["name", "id"])
        log.transaction(FULL, insert(1, "a", "b"), delete(old=(1, "a", "b")))
        assert [list(record.key.items()) for record in log.changes()] == [[("name", "a"), ("id", 1)]] * 2

    def test_other_identities_take_the_columns_that_they_mark_and_ask_nobody(self):
        def never(_):
            raise AssertionError

        for identity in "di":
            log = Log(key_of=never)
            log.transaction(relation(NAME, ID, NOTE._replace(key=True), identity=identity), insert("a", 1, "b"))
            assert [list(record.key.items()) for record in log.changes()] == [[("id", 1), ("note", "b")]]

    def test_a_table_without_a_key_has_records_without_one(self):
        log = Log()
        log.transaction(relation(NAME, NOTE, identity="n"), insert("a", "b"))
        schema, inserted = log.records()
        assert schema.value["tableChanges"][0]["table"]["primaryKeyColumnNames"] == []
        assert inserted.key is None

    def test_a_key_that_the_table_did_not_have_yet_is_no_key_and_said(self, caplog):
        # given a key column that was renamed after the change was written
        log = Log(key_of=lambda _: ["identifier"])
        # when
        log.transaction(FULL, insert(1, "a", "b"))
        # then
        schema, inserted = log.records()
        assert schema.value["tableChanges"][0]["table"]["primaryKeyColumnNames"] == []
        assert inserted.key is None
        assert "public.accounts" in caplog.text

    def test_a_key_column_that_was_null_when_the_change_was_written_is_null_in_the_key(self):
        log = Log(key_of=lambda _: ["id", "name"])
        log.transaction(FULL, insert(1, None, "b"))
        assert [record.key for record in log.changes()] == [{"id": 1, "name": None}]


class TestUnchanged:
    def test_without_an_old_row_the_column_is_named_and_absent(self):
        log = Log()
        log.transaction(DEFAULT, update((1, "Bi", UNCHANGED)))
        (updated,) = log.changes()
        assert updated.value["before"] is None
        assert updated.value["after"] == {"id": 1, "name": "Bi"}
        assert updated.value["unchanged"] == ["note"]

    def test_with_an_old_key_the_columns_beside_it_stay_unknown(self):
        log = Log()
        log.transaction(DEFAULT, update((2, "Bi", UNCHANGED), key=(1, None, None)))
        (updated,) = log.changes()
        assert updated.value["before"] == {"id": 1}
        assert updated.value["after"] == {"id": 2, "name": "Bi"}
        assert updated.value["unchanged"] == ["note"]

    def test_a_key_column_kept_out_of_line_is_taken_from_the_old_key(self):
        # given a key so long that PostgreSQL keeps it out of line, and so sends it as the old key
        log = Log()
        table = relation(Column("id", key=True), NAME, NOTE)
        # when
        log.transaction(table, update((UNCHANGED, "Bi", UNCHANGED), key=("k" * 3000, None, None)))
        # then
        (updated,) = log.changes()
        assert updated.key == {"id": "k" * 3000}
        assert updated.value["after"] == {"id": "k" * 3000, "name": "Bi"}
        assert updated.value["unchanged"] == ["note"]

    @pytest.mark.parametrize("old_note", ["long", None, 'with "quotes"'])
    def test_a_whole_old_row_fills_it_in(self, old_note):
        log = full_log()
        log.transaction(FULL, update((1, "Bi", UNCHANGED), old=(1, "Ana", old_note)))
        (updated,) = log.changes()
        assert updated.value["before"] == {"id": 1, "name": "Ana", "note": old_note}
        assert updated.value["after"] == {"id": 1, "name": "Bi", "note": old_note}
        assert "unchanged" not in updated.value

    def test_a_null_is_not_unchanged(self):
        log = full_log()
        log.transaction(FULL, update((1, "Bi", None), old=(1, "Ana", "long")))
        (updated,) = log.changes()
        assert updated.value["after"] == {"id": 1, "name": "Bi", "note": None}
        assert "unchanged" not in updated.value
