"""Each message of the log, byte for byte, and the record that it becomes (docs/records.md)."""

import json

import pytest

from headrace.position import Position
from headrace.schema import TableSchema
from tests.unit.edge.postgres.messages import (
    COMMIT,
    COMMIT_MS,
    END,
    EPOCH,
    INT8,
    NOW_MS,
    NUMERIC,
    OID,
    TEXT,
    UNCHANGED,
    XID,
    Column,
    Log,
    begin,
    commit,
    delete,
    insert,
    logical_message,
    opened,
    origin,
    relation,
    truncate,
    type_name,
    update,
)

ID, NAME, NOTE = Column("id", INT8, key=True), Column("name"), Column("note")
DEFAULT = relation(ID, NAME, NOTE)
#: PostgreSQL marks every column of a table with full identity.
FULL = relation(*(column._replace(key=True) for column in (ID, NAME, NOTE)), identity="f")

SOURCE = (
    '"source":{"version":"0.1.0","connector":"postgresql","name":"jakarta/bank","ts_ms":1769850900250,"snapshot":"false",'
    '"db":"bank","schema":"public","table":"accounts","txId":761,"lsn":27262976,'
    '"position":"692010c0/0000000001a00000/%08x"}'
)
TAIL = '"ts_ms":1769850900261,"transaction":{"id":"761:27262976","total_order":%d%s}'

B = "42 0000000001a00000 0002ecaa4aff1d90 000002f9"
C = "43 00 0000000001a00000 0000000001a00030 0002ecaa4aff1d90"
R = "52 00004010 7075626c696300 6163636f756e747300 64 0002  01 696400 00000014 ffffffff  00 6e616d6500 00000019 ffffffff"
I = "49 00004010 4e 0002 74 00000001 31 74 00000003 416e61"  # noqa: E741 - the message's letter.


def primary_key(_relation):
    return ["id"]


def full_log():
    return Log(key_of=primary_key)


def wire(text):
    return bytes.fromhex(text)


def golden(*messages):
    """Feed a transaction with messages given in hexadecimal; return the keys and values of its changes, as text."""
    log = Log(key_of=primary_key)
    log.feed(*(wire(text) for text in (B, R, I, *messages, C)))
    (sealed,) = log.sealed()
    batch = opened(sealed)
    return [
        (None if key is None else key.decode(), value.decode())
        for key, value in zip(batch.keys, batch.values, strict=True)
    ]


def change(op, rows, ordinal, *, last=True):
    return (
        "{"
        + rows
        + ","
        + SOURCE % ordinal
        + f',"op":"{op}",'
        + TAIL % (ordinal + 1, ',"last":true' if last else "")
        + "}"
    )


def test_the_hexadecimal_messages_are_the_built_ones():
    assert wire(C) == commit()
    assert wire(B) == begin()
    assert wire(R) == relation(ID, NAME)
    assert wire(I) == insert(1, "Ana")


def test_a_begin_a_relation_an_insert_and_a_commit_become_a_schema_record_and_a_change():
    schema, inserted = golden()
    assert inserted == ('{"id":1}', change("c", '"before":null,"after":{"id":1,"name":"Ana"}', 0))
    assert schema == (
        None,
        "{"
        + SOURCE % 0
        + ',"ts_ms":1769850900261,"databaseName":"bank","schemaName":"public","ddl":null,"tableChanges":['
        '{"type":"CREATE","id":"\\"public\\".\\"accounts\\"","table":{"primaryKeyColumnNames":["id"],"columns":['
        '{"name":"id","typeName":"int8","length":null,"scale":null,"position":1,"optional":false},'
        '{"name":"name","typeName":"text","length":null,"scale":null,"position":2,"optional":true}]}}]}',
    )


def test_an_update_without_an_old_row():
    *_, (key, value) = golden("55 00004010 4e 0002 74 00000001 31 6e")
    assert key == '{"id":1}'
    assert value == change("u", '"before":null,"after":{"id":1,"name":null}', 1)


def test_an_update_of_the_key_has_the_old_key_before_and_the_new_one_as_its_key():
    *_, (key, value) = golden("55 00004010 4b 0002 74 00000001 31 6e 4e 0002 74 00000001 32 74 00000003 416e61")
    assert key == '{"id":2}'
    assert value == change("u", '"before":{"id":1},"after":{"id":2,"name":"Ana"}', 1)


def test_an_update_with_the_whole_old_row():
    *_, (key, value) = golden(
        "55 00004010 4f 0002 74 00000001 31 74 00000003 416e61 4e 0002 74 00000001 31 74 00000002 4269"
    )
    assert key == '{"id":1}'
    assert value == change("u", '"before":{"id":1,"name":"Ana"},"after":{"id":1,"name":"Bi"}', 1)


def test_a_delete_by_key():
    *_, (key, value) = golden("44 00004010 4b 0002 74 00000001 31 6e")
    assert key == '{"id":1}'
    assert value == change("d", '"before":{"id":1},"after":null', 1)


def test_a_delete_with_the_whole_old_row():
    *_, (key, value) = golden("44 00004010 4f 0002 74 00000001 31 74 00000003 416e61")
    assert key == '{"id":1}'
    assert value == change("d", '"before":{"id":1,"name":"Ana"},"after":null', 1)


def test_a_truncate():
    *_, (key, value) = golden("54 00000001 00 00004010")
    assert key is None
    assert value == change("t", '"before":null,"after":null', 1)


def test_a_truncate_of_several_tables_is_a_record_for_each_with_ordinals_of_their_own():
    log = Log()
    log.transaction(DEFAULT, relation(ID, oid=2, table="orders"), truncate(OID, 2, options=3))
    records = log.records()
    assert [
        (record.position.ordinal, record.value["source"]["table"], record.value.get("op")) for record in records
    ] == [
        (0, "accounts", None),
        (0, "accounts", "t"),
        (1, "orders", None),
        (1, "orders", "t"),
    ]
    assert [record.value.get("transaction", {}).get("last") for record in records] == [None, None, None, True]


def test_origins_and_logical_messages_are_not_part_of_the_stream_unless_asked_for():
    log = Log()
    log.feed(begin(), origin(), DEFAULT, insert(1, "Ana", None), logical_message(), insert(2, "Bi", None), commit())
    assert [record.value["after"]["id"] for record in log.changes()] == [1, 2]


def test_a_type_message_names_a_type_in_the_schema_record():
    log = Log()
    log.transaction(
        type_name(50001, "mood"),
        relation(Column("id", INT8, key=True), Column("m", 50001), Column("x", 50002)),
        insert(1, "glad", "y"),
    )
    schema, _ = log.records()
    columns = schema.value["tableChanges"][0]["table"]["columns"]
    assert [column["typeName"] for column in columns] == ["int8", "mood", "oid:50002"]


def test_a_domain_is_written_as_the_built_in_type_beneath():
    log = Log()
    log.transaction(
        type_name(50001, "int4", namespace=""),
        type_name(50002, "numeric", namespace=""),
        type_name(50003, "int4"),
        relation(Column("id", INT8, key=True), Column("a", 50001), Column("b", 50002), Column("c", 50003)),
        insert(1, 7, "7.50", "7"),
    )
    schema, inserted = log.records()
    assert inserted.value["after"] == {"id": 1, "a": 7, "b": "7.50", "c": "7"}
    told = schema.value["tableChanges"][0]["table"]["columns"]
    assert [column["typeName"] for column in told] == ["int8", "int4", "numeric", "public.int4"]


class TestPlaceInTheLog:
    def test_only_the_last_change_of_a_transaction_says_so(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"), insert(2, "a", "b"), insert(3, "a", "b"))
        assert [change.value["transaction"] for change in log.changes()] == [
            {"id": f"{XID}:{COMMIT}", "total_order": 1},
            {"id": f"{XID}:{COMMIT}", "total_order": 2},
            {"id": f"{XID}:{COMMIT}", "total_order": 3, "last": True},
        ]

    def test_ordinals_count_changes_alone_and_begin_anew_in_each_transaction(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"), relation(ID, oid=2, table="other"), insert(2, oid=2))
        log.transaction(insert(3, "a", "b"), commit_lsn=COMMIT + 100, end=END + 100)
        assert [record.position for record in log.changes()] == [
            Position(EPOCH, COMMIT, 0),
            Position(EPOCH, COMMIT, 1),
            Position(EPOCH, COMMIT + 100, 0),
        ]

    def test_a_change_carries_its_own_position_as_text(self):
        log = Log()
        log.transaction(DEFAULT, *(insert(number, "a", "b") for number in range(20)))
        for record in log.records():
            assert record.value["source"]["position"] == str(record.position)

    def test_times_are_those_of_the_commit_and_of_the_reading(self):
        log = Log()
        log.feed(begin(), DEFAULT, insert(1, "a", "b"))
        log.decoder.feed(insert(2, "a", "b"), NOW_MS + 5)
        log.feed(commit())
        assert [(change.value["source"]["ts_ms"], change.value["ts_ms"]) for change in log.changes()] == [
            (COMMIT_MS, NOW_MS),
            (COMMIT_MS, NOW_MS + 5),
        ]

    def test_the_decoder_knows_what_it_was_fed_whole(self):
        log = Log()
        decoder = log.decoder
        assert (decoder.in_transaction, decoder.committed, decoder.end_lsn) == (False, None, 0)
        log.feed(begin(), DEFAULT, insert(1, "a", "b"), insert(2, "a", "b"))
        assert (decoder.in_transaction, decoder.committed, decoder.end_lsn) == (True, None, 0)
        log.feed(commit())
        assert (decoder.in_transaction, decoder.committed, decoder.end_lsn) == (False, Position(EPOCH, COMMIT, 1), END)

    def test_a_transaction_without_changes_moves_the_end_alone(self):
        log = Log()
        log.transaction(DEFAULT, insert(1, "a", "b"))
        log.transaction(commit_lsn=COMMIT + 100, end=END + 100)
        assert log.decoder.committed == Position(EPOCH, COMMIT, 0)
        assert log.decoder.end_lsn == END + 100


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
