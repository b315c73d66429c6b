"""Changes of the binlog in Debezium's envelope, and changed keys as a delete and a create."""

import json

import pytest

from headrace.batch import CONTENT_ENCODING, decode
from headrace.configuration.edge import Records
from headrace.errors import CorruptInput
from tests.unit.edge.mysql.events import Column, feed, make_decoder, mysql_gtid, query, rotate, rows, table_map, xid

COLUMNS = (Column("id", 3, unsigned=False), Column("note", 15, b"\x20\x00", collation=45))
MADE_MS, NOW = 1_769_850_900_000, "ts_ms"


def image(number, note):
    return b"\0" + number.to_bytes(4, "little") + bytes([len(note)]) + note


def at(found, end):
    """Return an event that ends at an offset of its file."""
    return found[:13] + end.to_bytes(4, "little") + found[17:]


def fed(records):
    decoder, batcher = make_decoder(records=records)
    inserted = rows(30, 2, image(1, b"a") + image(2, b"b"))
    updated = rows(31, 2, image(1, b"a") + image(1, b"c") + image(2, b"b") + image(3, b"b"))
    deleted = rows(32, 2, image(3, b"b"))
    feed(
        decoder, rotate(), mysql_gtid(1, 200), query("BEGIN", 250), table_map(*COLUMNS), at(inserted, 400), at(updated, 600),
        at(deleted, 700), xid(800),
    )  # fmt: skip
    sealed = batcher.seal()
    batch = decode(sealed.properties, CONTENT_ENCODING, sealed.body)
    result = [
        (key and json.loads(key), value and json.loads(value))
        for key, value in zip(batch.keys, batch.values, strict=True)
    ]
    headers = {index: [(name, json.loads(value)) for name, value in given] for index, given in batch.headers.items()}
    return result, headers, [position.ordinal for position in batch.positions()], (inserted, updated, deleted)


def test_a_changed_key_is_a_delete_its_tombstone_and_a_create_at_one_position():
    found, headers, ordinals, _ = fed(Records(key_change="delete-create", tombstones=True))

    assert [(key and key["id"], value and value.get("op")) for key, value in found] == [
        (None, None), (1, "c"), (2, "c"), (1, "u"), (2, "d"), (2, None), (3, "c"), (3, "d"), (3, None),
    ]  # fmt: skip
    assert headers == {
        4: [("__debezium.newkey", {"id": 3})],
        5: [("__debezium.newkey", {"id": 3})],
        6: [("__debezium.oldkey", {"id": 2})],
    }
    assert ordinals == [0, 0, 1, 2, 3, 3, 3, 4, 4]
    deleted, created = found[4][1], found[6][1]
    assert (deleted["before"], deleted["after"]) == ({"id": 2, "note": "b"}, None)
    assert (created["before"], created["after"]) == (None, {"id": 3, "note": "b"})
    assert created["former_key"] == {"id": 2}
    assert found[7][1]["transaction"]["last"] is True


def test_each_change_has_its_events_place_and_its_numbers():
    found, _, _, events = fed(Records(envelope="debezium", key_change="delete-create"))
    changes = [value for _, value in found if value and "op" in value]

    assert [change["source"]["pos"] for change in changes] == [
        end - len(each)
        for each, end, count in zip(events, (400, 600, 700), (2, 3, 1), strict=True)
        for _ in range(count)
    ]
    assert [change["source"]["row"] for change in changes] == [0, 1, 0, 1, 1, 0]
    assert {change["source"]["thread"] for change in changes} == {3}
    numbers = [change["transaction"] for change in changes]
    assert [(it["total_order"], it["data_collection_order"]) for it in numbers] == [(n, n) for n in range(1, 7)]
    source = changes[0]["source"]
    assert (source["ts_us"], source["ts_ns"]) == (source["ts_ms"] * 1000, source["ts_ms"] * 1_000_000)
    assert (changes[0]["ts_us"], changes[0]["ts_ns"]) == (changes[0]["ts_ms"] * 1000, changes[0]["ts_ms"] * 1_000_000)
    assert source["query"] is source["sequence"] is None


@pytest.mark.parametrize("records", [Records(), Records(envelope="debezium")])
def test_a_changed_key_is_one_update_unless_asked_otherwise(records):
    found, headers, _, _ = fed(records)

    assert [value["op"] for _, value in found if value and "op" in value] == ["c", "c", "u", "u", "d"]
    assert headers == {}


def test_the_place_of_rows_in_a_compressed_transaction_is_that_of_the_transaction():
    decoder, batcher = make_decoder(records=Records(envelope="debezium"))
    feed(
        decoder,
        rotate(),
        mysql_gtid(1, 200),
        query("BEGIN", 250),
        table_map(*COLUMNS),
        rows(30, 2, image(1, b"a")),
        xid(800),
    )
    assert json.loads(batcher.values[1])["source"]["pos"] == 200 - len(mysql_gtid(1, 200))


def test_a_query_event_alone_names_no_thread_of_the_transaction_before():
    decoder, batcher = make_decoder(records=Records(envelope="debezium"))
    for number, begin in ((1, [query("BEGIN", 250)]), (2, [])):
        first = 1000 * number
        feed(decoder, *([rotate()] if number == 1 else []), mysql_gtid(number, first), *begin)
        feed(decoder, table_map(*COLUMNS), at(rows(30, 2, image(number, b"a")), first + 50), xid(first + 90))
    threads = [json.loads(value)["source"]["thread"] for value in batcher.values if b'"op"' in value]
    assert threads == [3, None]


COMMITTED, REPLICATED = 1_769_850_900_123_456, 1_769_850_901_000_000
#: What follows the times: the transaction's length, and the server's version.
REST = b"\xfc\x34\x12" + (80_015).to_bytes(4, "little")


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (COMMITTED.to_bytes(7, "little") + REST, COMMITTED),
        ((REPLICATED | 1 << 55).to_bytes(7, "little") + COMMITTED.to_bytes(7, "little") + REST, COMMITTED),
        # Of a server that does not note it, and of a replica of such a one.
        (b"", MADE_MS * 1000),
        ((REPLICATED | 1 << 55).to_bytes(7, "little") + bytes(7) + REST, MADE_MS * 1000),
    ],
    ids=["first server", "replica", "5.7", "replica of 5.7"],
)
@pytest.mark.parametrize("envelope", ["headrace", "debezium"])
def test_the_time_of_a_transaction_of_mysql_is_that_of_its_commit_on_its_first_server(times, expected, envelope):
    decoder, batcher = make_decoder(records=Records(envelope=envelope))
    feed(
        decoder, rotate(), mysql_gtid(1, 200, times), query("BEGIN", 250), table_map(*COLUMNS), rows(30, 2, image(1, b"a")),
        xid(800),
    )  # fmt: skip

    source = json.loads(batcher.values[1])["source"]
    given = {name: value for name, value in source.items() if name.startswith("ts_")}
    finer = {"ts_us": expected, "ts_ns": expected * 1000} if envelope == "debezium" else {}
    assert given == {"ts_ms": expected // 1000} | finer


def test_a_transaction_whose_time_is_cut_short_stops_the_edge():
    decoder, _ = make_decoder(records=Records(envelope="debezium"))
    with pytest.raises(CorruptInput):
        feed(decoder, rotate(), mysql_gtid(1, 200, (REPLICATED | 1 << 55).to_bytes(7, "little")))
