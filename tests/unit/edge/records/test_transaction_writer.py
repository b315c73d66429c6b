"""What `[records]` asks for beside changes of a binlog, and dead letters: the forms are those of PostgreSQL's edge."""

import hashlib
import json

from headrace.batch import decode
from headrace.configuration.edge import Records
from headrace.position import Position
from tests.unit.edge.mysql.events import Column, feed, make_decoder, mariadb_gtid, rows, table_map, xid

ID, NAME, N = Column("id", 3, unsigned=False), Column("name", 252, b"\2", collation=255), Column("n", 1, unsigned=False)
ACCOUNTS, KEYLESS = table_map(ID, NAME, N), table_map(ID, NAME, N, key=())
HUGE = "x" * 5000


def image(number, name="a"):
    return b"\0" + number.to_bytes(4, "little") + len(name).to_bytes(2, "little") + name.encode() + b"\7"


def sent(*inner, largest=1000, **records):
    """Return (position, key, value) of what becomes of a transaction."""
    decoder, batcher = make_decoder("mariadb", largest=largest, records=Records(**records))
    feed(decoder, mariadb_gtid(9, 200), *inner, xid(500))
    batches = [decode(sealed.properties, "zstd", sealed.body) for sealed in (*batcher.take(), batcher.seal())]
    result = [
        (position, key and json.loads(key), value and json.loads(value))
        for batch in batches
        for position, key, value in zip(batch.positions(), batch.keys, batch.values, strict=True)
    ]
    return [record for record in result if record[2] is None or "tableChanges" not in record[2]], batcher


def test_a_tombstone_follows_each_delete_with_its_position():
    found, _ = sent(ACCOUNTS, rows(23, 3, image(1)), rows(25, 3, image(1) + image(2)), tombstones=True)

    shown = [(position.ordinal, key, value and value["op"]) for position, key, value in found]
    first, two = {"id": 1}, {"id": 2}
    assert shown == [(0, first, "c"), (1, first, "d"), (1, first, None), (2, two, "d"), (2, two, None)]
    assert [value["transaction"].get("last") for _, _, value in found if value] == [None, None, True]


def test_a_delete_without_a_key_has_no_tombstone():
    found, _ = sent(KEYLESS, rows(25, 3, image(1)), tombstones=True)

    assert [(key, value["op"]) for _, key, value in found] == [(None, "d")]


def test_a_transaction_tells_where_it_begins_and_ends():
    found, _ = sent(
        ACCOUNTS, rows(23, 3, image(1) + image(2)), rows(25, 3, image(1)), transactions=True, tombstones=True
    )

    (at, key, begin), *_, (after, _, end) = found
    assert [value and (value.get("status") or value["op"]) for _, _, value in found] == [
        "BEGIN",
        "c",
        "c",
        "d",
        None,
        "END",
    ]
    assert (at.ordinal, after.ordinal) == (0, 3)
    assert key == {"id": "0-5-9"}
    assert (begin["id"], begin["event_count"], begin["data_collections"]) == ("0-5-9", None, None)
    assert (end["event_count"], end["data_collections"]) == (
        3,
        [{"data_collection": "bank.accounts", "event_count": 3}],
    )
    assert (begin["source"]["table"], begin["source"]["position"]) == ("", str(at))
    assert end["source"]["position"] == str(after)


def test_a_dead_letter_takes_the_place_of_what_is_too_large_with_key_size_and_hash():
    found, batcher = sent(ACCOUNTS, rows(23, 3, image(1) + image(7, HUGE) + image(8)), on_too_large="dead-letter")

    _, (position, key, letter), (_, _, after) = found
    assert (position, key) == (Position(1, 7 << 32 | 200, 1), {"id": 7})
    assert (letter["op"], letter["before"], letter["after"]) == ("c", None, {"id": 7})
    assert letter["unchanged"] == ["name", "n"]
    row = json.dumps({"id": 7, "name": HUGE, "n": 7}, separators=(",", ":")).encode()
    assert letter["too_large"]["sha256"] == hashlib.sha256(row).hexdigest()
    assert letter["too_large"]["bytes"] > len(row)
    assert letter["source"]["position"] == str(position)
    assert (after["after"]["id"], after["transaction"]["last"]) == (8, True)
    assert batcher.dead_letters == 1


def test_of_an_update_the_old_key_stays_and_of_a_delete_the_key():
    found, _ = sent(
        ACCOUNTS,
        rows(24, 3, image(1) + image(2, HUGE)),
        rows(25, 3, image(2, HUGE)),
        on_too_large="dead-letter",
    )

    (_, _, updated), (_, _, deleted) = found
    assert (updated["before"], updated["after"], updated["unchanged"]) == ({"id": 1}, {"id": 2}, ["name", "n"])
    assert (deleted["before"], deleted["after"]) == ({"id": 2}, None)
    assert "unchanged" not in deleted
    assert updated["too_large"]["sha256"] == deleted["too_large"]["sha256"]


def test_a_table_without_a_key_has_a_dead_letter_without_one():
    found, _ = sent(KEYLESS, rows(23, 3, image(1, HUGE)), on_too_large="dead-letter")

    ((_, key, letter),) = found
    assert (key, letter["after"], letter["unchanged"]) == (None, {}, ["id", "name", "n"])
