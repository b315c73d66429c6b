"""M2: a value that cannot be decoded concerns its row alone: a dead letter with table, place and column, never the value."""

import json
import struct

import pytest

from headrace.configuration.edge import Records
from headrace.errors import CorruptInput, NeedsOperator
from tests.unit.edge.mysql import events
from tests.unit.edge.mysql.events import Column, feed, mariadb_gtid, mysql_gtid, query, rows, table_map, xid
from tests.unit.edge.mysql.test_decoder import ANA, ID, NAME
from tests.unit.edge.mysql.test_moved_rows import Session, waiting

DAY = Column("day", 10)
DOCUMENT = Column("document", 245, b"\4")
PRICE = Column("price", 246, b"\x04\x02", unsigned=False)
KINDS = Column("kinds", 254, b"\xf8\1", members=("a", "b"), real=248)
SWE7 = NAME._replace(collation=99)

#: A column, a value of it that is one, and one that is none.
VALUES = [
    (DAY, (2026 << 9 | 11 << 5 | 25).to_bytes(3, "little"), (2026 << 9 | 15 << 5 | 1).to_bytes(3, "little")),
    (DOCUMENT, b"\2\0\0\0\4\1", b"\6\0\0\0\x0c\x09secr"),
    (DOCUMENT, b"\2\0\0\0\4\1", b"\2\0\0\0\x77\1"),
    (KINDS, b"\3", b"\x7f"),
]


class Odd(Session):
    """A session whose records may have other settings."""

    def __init__(self, folder, *, engine="mysql", **options):
        super().__init__(folder, copies=options.pop("copies", False))
        self.decoder, self.batcher = events.make_decoder(engine, history=self.history, **options)
        feed(self.decoder, events.rotate())

    def commit(self, at, *inner):
        feed(self.decoder, mysql_gtid(at, at), query("BEGIN", at + 10), *inner, xid(at + 90))

    @property
    def changes(self):
        return [json.loads(value) for value in self.batcher.values if value is not None and b'"op":' in value]


def image(number, *columns):
    return b"\0" + struct.pack("<i", number) + b"".join(columns)


def letter(change):
    assert change["too_large"]["sha256"] == ""
    return change["op"], change["after"], change["too_large"]["column"], change["unchanged"]


@pytest.mark.parametrize("envelope", ["headrace", "debezium"])
@pytest.mark.parametrize(("column", "good", "bad"), VALUES, ids=range(len(VALUES)))
def test_a_value_that_cannot_be_decoded_is_a_dead_letter_and_the_source_goes_on(
    tmp_path, caplog, column, good, bad, envelope
):
    session = Odd(tmp_path, records=Records(envelope=envelope))
    described = table_map(ID, column)
    whole = image(1, good), image(2, bad), image(3, good)

    session.commit(200, described, rows(30, 2, b"".join(whole)))
    session.commit(300, described, rows(31, 2, image(1, good) + image(1, bad)))

    first, second, third, update = session.changes
    assert (first["after"]["id"], third["after"]["id"]) == (1, 3)
    assert letter(second) == ("c", {"id": 2}, column.name, [column.name])
    assert letter(update) == ("u", {"id": 1}, column.name, [column.name])
    assert session.batcher.keys[1:4] == [b'{"id":1}', b'{"id":2}', b'{"id":3}']
    assert [change["source"]["position"][-8:] for change in session.changes] == [
        "00000000",
        "00000001",
        "00000002",
        "00000000",
    ]
    assert third["transaction"]["last"]
    assert session.batcher.dead_letters == 2
    assert column.name in session.history.warnings["bank.accounts"]
    assert "bank.accounts at position 00000001/00000007000000c8/00000001" in caplog.text
    assert "secr" not in caplog.text


@pytest.mark.parametrize("form", ["json", "avro"])
def test_a_value_without_a_form_in_avro_is_a_dead_letter_and_the_source_goes_on(tmp_path, form):
    """M2: Kafka Connect's Time has 32 bits, which end after 24 days; in Avro consumers read another time."""
    session = Odd(tmp_path, records=Records(time="connect", format=form))
    clock = Column("clock", 19, b"\0")
    day, month = ((0x800000 + (hours << 12)).to_bytes(3, "big") for hours in (24, 838))
    session.commit(200, table_map(ID, clock), rows(30, 2, image(1, day) + image(2, month) + image(3, day)))

    first, second, third = session.changes
    assert [it["after"]["clock"] for it in (first, third)] == [86_400_000] * 2
    if form == "json":
        assert second["after"]["clock"] == 838 * 3_600_000
    else:
        assert letter(second) == ("c", {"id": 2}, "clock", ["clock"])
    assert session.batcher.seal() is not None


def test_a_compressed_text_that_does_not_unpack_is_a_dead_letter(tmp_path):
    session = Odd(tmp_path, engine="mariadb")
    described = table_map(ID, NAME._replace(type=141))

    feed(
        session.decoder,
        mariadb_gtid(1, 200),
        described,
        rows(23, 2, image(1, b"\3\x81\5x") + image(2, b"\2\0a")),
        xid(300),
    )

    first, second = session.changes
    assert letter(first) == ("c", {"id": 1}, "name", ["name"])
    assert second["after"] == {"id": 2, "name": "a"}


def test_a_row_that_is_put_right_or_deleted_needs_no_dead_letter(tmp_path):
    """Its old row holds what cannot be decoded; the key is enough."""
    session = Odd(tmp_path)
    column, good, bad = VALUES[0]
    described = table_map(ID, column)

    session.commit(200, described, rows(31, 2, image(1, bad) + image(1, good)), rows(32, 2, image(2, bad)))

    update, delete = session.changes
    assert (update["before"], update["after"]) == ({"id": 1}, {"id": 1, "day": "2026-11-25"})
    assert (delete["before"], delete["after"], delete["op"]) == ({"id": 2}, None, "d")
    assert session.batcher.dead_letters == 0
    assert session.history.warnings == {}


def test_a_key_that_cannot_be_decoded_leaves_its_change_out_and_its_table_needs_a_copy(tmp_path):
    session = Odd(tmp_path)
    column, good, bad = VALUES[0]
    described = table_map(column, NAME, key=(0,))

    session.commit(200, described, rows(30, 2, b"\0" + good + b"\1a" + b"\0" + bad + b"\1b" + b"\0" + good + b"\1c"))
    session.insert(300)

    assert [change["source"]["position"][-8:] for change in session.changes][:2] == ["00000000", "00000002"]
    (marked,) = [json.loads(value)["rewritten"] for value in session.batcher.values if b'"rewritten":["' in value]
    assert "column day, of the key" in marked[0]
    assert "day" in session.history.warnings["bank.accounts"]


def test_a_changed_key_whose_new_row_cannot_be_decoded_is_a_delete_and_a_dead_letter(tmp_path):
    session = Odd(tmp_path, records=Records(key_change="delete-create"))
    column, good, bad = VALUES[0]

    session.commit(200, table_map(ID, column), rows(31, 2, image(1, good) + image(2, bad)))

    delete, create = session.changes
    assert (delete["op"], delete["before"]) == ("d", {"id": 1, "day": "2026-11-25"})
    assert letter(create) == ("c", {"id": 2}, "day", ["day"])
    assert create["former_key"] == {"id": 1}


def test_a_text_without_a_codec_concerns_the_rows_that_have_one(tmp_path):
    session = Odd(tmp_path)

    session.commit(200, table_map(ID, SWE7), rows(30, 2, ANA + b"\2" + b"\2\0\0\0"))

    first, second = session.changes
    assert letter(first) == ("c", {"id": 1}, "name", ["name"])
    assert second["after"] == {"id": 2, "name": None}


@pytest.mark.parametrize(
    ("described", "reason"),
    [
        (table_map(ID, Column("new", 226)), "bank.accounts.new is of a type that this release does not read"),
        (table_map(ID, PRICE._replace(meta=b"\x04\xff")), "the log's description of it cannot be read"),
        (table_map(ID, Column("new", 233, b"\1\2")), "the log's description of it cannot be read"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_read_needs_a_copy_and_the_source_goes_on(tmp_path, described, reason):
    session = Odd(tmp_path, copies=True)
    session.insert(100, table="other")
    for at in (200, 300):
        session.commit(at, described, rows(30, 2, image(1, b"secret")))
    session.insert(400, table="other")
    session.insert(500)

    assert [change["source"]["table"] for change in session.changes] == ["other", "other", "accounts"]
    assert reason in session.history.warnings["bank.accounts"]
    assert waiting(tmp_path) == [["bank.accounts"]]


@pytest.mark.parametrize(
    "images", [image(1, VALUES[0][2])[:-1], image(1, VALUES[0][2]) + b"\0", image(1, VALUES[0][2]) * 2 + b"\0\1"]
)
def test_a_row_whose_end_cannot_be_found_stops_the_source(tmp_path, images):
    session = Odd(tmp_path)

    with pytest.raises(CorruptInput, match=r"event of type 30 of bank\.accounts"):
        session.commit(200, table_map(ID, DAY), rows(30, 2, images))
    assert session.changes == []


@pytest.mark.parametrize(("column", "good", "bad"), VALUES, ids=range(len(VALUES)))
def test_who_wants_the_source_to_stop_gets_that(tmp_path, column, good, bad):
    session = Odd(tmp_path, records=Records(on_too_large="stop"))

    with pytest.raises((CorruptInput, NeedsOperator)):
        session.commit(200, table_map(ID, column), rows(30, 2, image(1, good) + image(2, bad)))


def test_the_copy_that_follows_is_made_once_a_day_and_the_mark_stays(tmp_path, monkeypatch):
    """Rows that lack columns made a copy begin again with each of their transactions."""
    session = Odd(tmp_path, copies=True)
    session.insert(100)
    partial = [table_map(ID, NAME), rows(30, 2, b"\0\1\0\0\0", present=b"\1")]
    session.commit(200, *partial)
    assert waiting(tmp_path) == [["bank.accounts"]]
    for path in (tmp_path / "snapshot-requests").iterdir():
        path.unlink()

    for at in (300, 400):
        session.commit(at, *partial)
        session.history.copied("bank.accounts", 1)
        assert "lacks columns" in session.history.warnings["bank.accounts"]
    session.history.copied("bank.accounts", 1 << 60)
    session.commit(500, *partial)

    assert waiting(tmp_path) == []
    assert "lacks columns" in session.history.warnings["bank.accounts"]
    monkeypatch.setattr("edge.snapshot.table_history._RECURS_MS", 0)
    session.commit(600, *partial)
    assert waiting(tmp_path) == [["bank.accounts"]]


def test_reasons_that_no_schema_record_had_yet_are_joined(tmp_path):
    """Of two marks the second one took the first one's place."""
    session = Session(tmp_path)
    session.insert(100)
    session.run("alter table accounts drop partition p", 200)
    session.run_in_transaction("update accounts set name = 'x'", 300)
    session.insert(400, columns=(ID, NAME, Column("more", 1, unsigned=False)), images=ANA + b"\1")

    (reasons, _), change = session.records[2:]
    assert change == ("c", "accounts")
    assert reasons[0] == "a partition was dropped"
    assert "UPDATE accounts" in reasons[1]


def test_a_wrong_value_in_a_key_is_not_the_empty_member(tmp_path):
    """N8: both were "", so that two rows became one."""
    session = Odd(tmp_path)
    kind = Column("kind", 254, b"\xf7\1", members=("", "a"), real=247)

    session.commit(
        200, table_map(kind, ID, key=(0,)), rows(30, 2, b"".join(b"\0" + bytes([it]) + bytes(4) for it in range(3)))
    )
    session.commit(300, table_map(ID, kind), rows(30, 2, image(1, b"\0") + image(2, b"\1")))

    assert [change["after"] for change in session.changes] == [
        {"kind": "", "id": 0}, {"kind": "a", "id": 0}, {"id": 1, "kind": ""}, {"id": 2, "kind": ""},
    ]  # fmt: skip
    assert "column kind, of the key" in session.history.warnings["bank.accounts"]


LONG = Column("note", 252, b"\3", collation=255), Column("data", 252, b"\4", collation=63)


def long_image(number, note, data):
    return image(number, len(note).to_bytes(3, "little") + note, len(data).to_bytes(4, "little") + data)


@pytest.mark.parametrize("envelope", ["headrace", "debezium"])
def test_a_change_that_is_not_decoded_has_the_same_dead_letter(tmp_path, monkeypatch, envelope):
    """G7: decoding a value of 64 MB took 443 MB."""
    note, data = 'Größe "\n'.encode() * 150_000, bytes(range(256)) * 3_000
    described = table_map(ID, *LONG)
    old, new = long_image(1, b"a", data), long_image(1, note, b"b")
    letters = []
    for largest in (1 << 20, 1 << 40):
        monkeypatch.setattr("edge.mysql.careful_rows._LARGE", 64 << 10 if largest == 1 << 20 else 1 << 40)
        session = Odd(tmp_path, records=Records(envelope=envelope), largest=1 << 20)
        session.commit(200, described, rows(30, 3, new), rows(31, 3, old + new), rows(32, 3, new))
        letters.append(session.changes)
        # Large, and not beyond the limit.
        session.commit(300, described, rows(30, 3, old))
        assert session.batcher.dead_letters == 3

    assert letters[0] == letters[1]
    assert [("too_large" in change, change["op"]) for change in letters[0]] == [(True, "c"), (True, "u"), (True, "d")]
    assert letters[0][0]["too_large"]["bytes"] > 1 << 20
