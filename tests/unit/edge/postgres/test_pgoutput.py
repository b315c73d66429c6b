"""Each message of the log, byte for byte, and the record that it becomes (docs/records.md)."""

from headrace import __version__
from tests.unit.edge.postgres.accounts import DEFAULT, ID, NAME, primary_key
from tests.unit.edge.postgres.messages import (
    INT8,
    OID,
    Column,
    Log,
    begin,
    commit,
    insert,
    logical_message,
    opened,
    origin,
    relation,
    truncate,
    type_name,
)

SOURCE = (
    f'"source":{{"version":"{__version__}",'
    '"connector":"postgresql","name":"jakarta/bank","ts_ms":1769850900250,"snapshot":"false",'
    '"db":"bank","schema":"public","table":"accounts","txId":761,"lsn":27262976,'
    '"position":"692010c0/0000000001a00000/%08x"}'
)
TAIL = '"ts_ms":1769850900261,"transaction":{"id":"761:27262976","total_order":%d%s}'
B = "42 0000000001a00000 0002ecaa4aff1d90 000002f9"
C = "43 00 0000000001a00000 0000000001a00030 0002ecaa4aff1d90"
R = "52 00004010 7075626c696300 6163636f756e747300 64 0002  01 696400 00000014 ffffffff  00 6e616d6500 00000019 ffffffff"
I = "49 00004010 4e 0002 74 00000001 31 74 00000003 416e61"  # noqa: E741 - the message's letter.


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
    reported = schema.value["tableChanges"][0]["table"]["columns"]
    assert [column["typeName"] for column in reported] == ["int8", "int4", "numeric", "public.int4"]
