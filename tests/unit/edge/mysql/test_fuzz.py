"""Bytes that are no log: a typed error or a result, never anything else, and no change of what cannot be decoded."""

import contextlib
import json
import random
import struct

import pytest

from edge.mysql import values
from edge.mysql.column_text import json_text
from headrace.errors import CorruptInput, NeedsOperator, ReplicationError
from tests.unit.edge.mysql.events import (
    Column,
    event,
    feed,
    make_decoder,
    mysql_gtid,
    payload,
    query,
    rotate,
    rows,
    table_map,
    xa_prepared,
    xid,
)  # fmt: skip

WIDE = table_map(
    Column("id", values.LONG, unsigned=False), Column("price", values.NEWDECIMAL, b"\x0c\x02", unsigned=False),
    Column("name", values.VARCHAR, b"\x2c\x01", collation=255), Column("at", values.DATETIME2, b"\x03"),
    Column("kind", values.STRING, b"\xf7\x01", members=("a", "b"), real=247), Column("blob", values.BLOB, b"\x02", collation=63),
    Column("doc", values.JSON, b"\x04"), Column("bits", values.BIT, b"\x02\x01"),
)  # fmt: skip


def _at(year, month, day, hour, minute, second):
    """Return the 40 bits of a DATETIME."""
    return (1 << 39 | (year * 13 + month) << 22 | day << 17 | hour << 12 | minute << 6 | second).to_bytes(5, "big")


ROW = (
    b"\0" + struct.pack("<i", 7) + bytes.fromhex("80000004d20c") + struct.pack("<H", 3) + b"Ana"
    + _at(2026, 1, 31, 9, 15, 0) + struct.pack(">H", 2500) + b"\2" + b"\2\0\1\2" + struct.pack("<I", 2) + b"\4\1" + b"\0\5"
)  # fmt: skip
EVENTS = [
    mysql_gtid(1, 200), query("BEGIN", 250), WIDE, rows(30, 8, ROW), rows(31, 8, ROW + ROW), rows(32, 8, ROW), xid(900),
]  # fmt: skip
XA = [
    mysql_gtid(1, 200), query("XA START X'61',X'',1", 250), WIDE, rows(30, 8, ROW), query("XA END X'61',X'',1", 300),
    xa_prepared(b"a", 400), mysql_gtid(2, 500), query("XA COMMIT X'61',X'',1", 600),
]  # fmt: skip


def test_the_logs_that_are_damaged_below_are_whole():
    decoder, batcher = make_decoder()
    feed(decoder, rotate(), *XA)
    assert len(batcher.values) == 2
    decoder, batcher = make_decoder()
    feed(decoder, rotate(), *EVENTS)

    assert json.loads(batcher.values[1])["after"] == {
        "id": 7, "price": "1234.12", "name": "Ana", "at": "2026-01-31T09:15:00.250",
        "kind": "b", "blob": "AQI=", "doc": "true", "bits": "0000000101",
    }  # fmt: skip
    assert len(batcher.values) == 4


@pytest.mark.parametrize("which", range(len(EVENTS)))
def test_event_cut_anywhere_is_an_error_or_a_result(which):
    whole = EVENTS[which]
    for length in range(19, len(whole)):
        decoder, _batcher = make_decoder()
        feed(decoder, rotate(), *EVENTS[:which])
        with contextlib.suppress(CorruptInput, NeedsOperator):
            feed(decoder, whole[:length])


def test_rows_cut_anywhere_add_nothing():
    for length in [*range(19, 31), *range(32, len(EVENTS[3]))]:
        decoder, batcher = make_decoder()
        with pytest.raises(ReplicationError):
            feed(decoder, rotate(), *EVENTS[:3], EVENTS[3][:length])
        assert not batcher.values


def test_bytes_turned_at_random_are_an_error_or_a_result():
    chance = random.Random(20260131)
    inner = payload([query("BEGIN", 0), WIDE, rows(30, 8, ROW), xid(0)], 900)
    for log in [EVENTS, [EVENTS[0], inner], XA] * 500:
        decoder, batcher = make_decoder()
        feed(decoder, rotate())
        which = chance.randrange(len(log))
        damaged = bytearray(log[which])
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(4, len(damaged))] = chance.randrange(256)
        try:
            feed(decoder, *log[:which], bytes(damaged), *log[which + 1 :])
        except (CorruptInput, NeedsOperator):
            continue
        for value in batcher.values:
            json.loads(value)


def test_random_bytes_of_every_type_are_an_error_or_a_result():
    chance = random.Random(7)
    for kind in range(256):
        for length in (0, 1, 8, 60):
            decoder, _batcher = make_decoder()
            feed(decoder, rotate(), EVENTS[0])
            with contextlib.suppress(CorruptInput, NeedsOperator):
                feed(decoder, event(kind, chance.randbytes(length), 300))


def test_random_json_documents_are_an_error_or_a_text():
    chance = random.Random(11)
    texts = 0
    for _ in range(8_000):
        data = bytes([chance.randrange(16)]) + chance.randbytes(chance.randrange(1, 40))
        try:
            texts += bool(json_text(data))
        except (ValueError, IndexError, struct.error):
            continue
    assert texts


def test_json_document_that_refers_to_itself_ends():
    # An object whose element is itself, over and over.
    with pytest.raises((ValueError, IndexError, struct.error)):
        json_text(b"\x02" + struct.pack("<HH", 2, 200) + b"\x02\x00\x00" * 2 + bytes(190))
