"""`[records] profile = "debezium"`: its envelope, changed keys as delete and create, placeholders, truncates."""

import json

import pytest

from edge.records.alterations import Catalog
from headrace.position import Position
from tests.unit.edge.postgres.accounts import primary_key
from tests.unit.edge.postgres.messages import (
    COMMIT,
    COMMIT_MS,
    END,
    EPOCH,
    INT4,
    NOW_MS,
    UNCHANGED,
    Column,
    Log,
    begin,
    commit,
    delete,
    insert,
    origin,
    relation,
    truncate,
    update,
)

ID, NAME, BIG, PHOTO, COUNT = (
    Column("id", INT4, key=True),
    Column("name"),
    Column("big"),
    Column("photo", 17),
    Column("count", INT4),
)
TABLE = relation(ID, NAME, BIG, PHOTO, COUNT)
FULL = relation(*(column._replace(key=True) for column in (ID, NAME, BIG, PHOTO, COUNT)), identity="f")
ROW = (1, "Ana", "long", r"\x00ff", 7)


def the_catalog(_relation):
    return Catalog({}, {}, 0, frozenset({"id", "name", "count"}))


def debezium(**records):
    return Log(key_of=primary_key, catalog_of=the_catalog, **({"profile": "debezium"} | records))


def placed(log, *messages):
    """Feed messages with the place of each in the log."""
    for number, message in enumerate(messages):
        log.decoder.feed_placed((1000 + number).to_bytes(8, "big") + bytes(16) + message, NOW_MS)


def headers(batch):
    return {index: [(name, json.loads(value)) for name, value in given] for index, given in batch.headers.items()}


def test_each_change_has_its_own_place_times_and_numbers():
    log, other = debezium(), relation(ID, oid=7, table="other")
    placed(log, begin(), TABLE, insert(*ROW), other, insert(5, oid=7), insert(2, "B", None, None, 1), commit())
    placed(log, begin(END + 8), insert(3, "C", None, None, 1), commit(END + 8, END + 16))
    first, second, third, fourth = log.changes()

    source = first.value["source"]
    assert (source["lsn"], source["sequence"], source["xmin"]) == (1002, '[null,"1002"]', None)
    assert (source["ts_us"], source["ts_ns"]) == (COMMIT_MS * 1000, COMMIT_MS * 1_000_000)
    assert (first.value["ts_us"], first.value["ts_ns"]) == (NOW_MS * 1000, NOW_MS * 1_000_000)
    assert [each.value["source"]["lsn"] for each in (second, third)] == [1004, 1005]
    orders = [each.value["transaction"] for each in (first, second, third, fourth)]
    assert [(each["total_order"], each["data_collection_order"]) for each in orders] == [(1, 1), (2, 1), (3, 2), (1, 1)]
    assert [each.get("last") for each in orders] == [None, None, True, True]
    assert fourth.value["source"]["sequence"] == f'["{END}","1001"]'
    assert [each.position.ordinal for each in (first, second, third, fourth)] == [0, 1, 2, 0]


def test_a_change_that_was_replicated_names_its_origin():
    log = debezium()
    log.transaction(origin(), TABLE, insert(*ROW))
    log.transaction(insert(2, "B", None, None, 1), commit_lsn=END + 8, end=END + 16)
    sources = [(each.value["source"]["origin"], each.value["source"]["origin_lsn"]) for each in log.changes()]
    assert sources == [("elsewhere", COMMIT), (None, None)]


def test_schema_records_name_columns_that_are_not_null():
    log = debezium()
    log.transaction(TABLE, insert(*ROW))
    columns = log.records()[0].value["tableChanges"][0]["table"]["columns"]
    assert {each["name"]: each["optional"] for each in columns} == {
        "id": False, "name": False, "big": True, "photo": True, "count": False,
    }  # fmt: skip


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("tombstones", [False, True])
def test_a_changed_key_is_a_delete_and_a_create_at_one_position(whole, tombstones):
    log = debezium(tombstones=tombstones)
    new = (2, *ROW[1:])
    changed = update(new, old=ROW) if whole else update(new, key=(1, None, None, None, None))
    log.transaction(FULL if whole else TABLE, insert(*ROW), changed, insert(3, "C", None, None, 1))
    (batch,) = log.batches()
    rows = [
        (str(position)[-8:], key and json.loads(key)["id"], value and json.loads(value).get("op"))
        for position, key, value in zip(batch.positions(), batch.keys, batch.values, strict=True)
    ]
    tombstone = [("00000001", 1, None)] if tombstones else []
    assert rows[1:] == [
        ("00000000", 1, "c"), ("00000001", 1, "d"), *tombstone, ("00000001", 2, "c"), ("00000002", 3, "c"),
    ]  # fmt: skip
    named = [("__debezium.newkey", {"id": 2})]
    create = 4 if tombstones else 3
    assert headers(batch) == {2: named, create: [("__debezium.oldkey", {"id": 1})]} | ({3: named} if tombstones else {})
    deleted, created = json.loads(batch.values[2]), json.loads(batch.values[create])
    before = {"id": 1, "name": "Ana", "big": "long", "photo": "AP8=", "count": 7}
    assert deleted["before"] == (before if whole else {"id": 1, "name": "", "big": None, "photo": None, "count": 0})
    assert (deleted["after"], created["before"], created["after"]) == (None, None, before | {"id": 2})
    assert created["former_key"] == {"id": 1}
    assert (deleted["transaction"]["total_order"], created["transaction"]["total_order"]) == (2, 3)
    # a bridge that has the change has all of it
    tail = Position(EPOCH, COMMIT, 1)
    assert batch.values[batch.index_after(tail)] == batch.values[-1]


def test_an_update_with_its_old_row_that_keeps_the_key_is_an_update():
    log = debezium()
    log.transaction(FULL, insert(*ROW), update((1, "Bo", *ROW[2:]), old=ROW))
    assert [(each.key["id"], each.value["op"]) for each in log.changes()] == [(1, "c"), (1, "u")]


def test_a_changed_key_alone_keeps_the_ordinary_envelope():
    log = Log(key_of=primary_key, key_change="delete-create")
    log.transaction(TABLE, insert(*ROW), update((2, *ROW[1:]), key=(1, None, None, None, None)))
    _, deleted, created = log.changes()
    assert (deleted.value["op"], deleted.value["before"], created.value["op"]) == ("d", {"id": 1}, "c")
    assert "ts_us" not in created.value
    assert created.value["transaction"] == {"id": f"761:{COMMIT}", "total_order": 2, "last": True}


def test_what_the_log_does_not_carry_is_a_placeholder_and_named():
    log = debezium()
    log.transaction(
        TABLE,
        update((1, "Bo", UNCHANGED, UNCHANGED, 8)),
        update((2, "Bo", UNCHANGED, UNCHANGED, 8), key=(1, None, None, None, None)),
        delete(key=(2, None, None, None, None)),
    )
    updated, _, created, deleted = [each for each in log.changes() if each.value]
    after = {"id": 1, "name": "Bo", "big": "__debezium_unavailable_value", "count": 8}
    after["photo"] = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="
    assert (updated.value["after"], updated.value["unchanged"]) == (after, ["big", "photo"])
    assert (created.value["after"], created.value["unchanged"]) == (after | {"id": 2}, ["big", "photo"])
    assert created.value["former_key"] == {"id": 1}
    assert deleted.value["before"] == {"id": 2, "name": "", "big": None, "photo": None, "count": 0}


def test_a_truncate_is_no_record_and_takes_its_ordinal():
    log = debezium()
    log.transaction(TABLE, truncate(16400), insert(*ROW))
    (change,) = log.changes()
    assert (change.value["op"], change.position.ordinal, change.value["transaction"]["total_order"]) == ("c", 1, 1)

    asked = debezium(truncates=True)
    asked.transaction(TABLE, truncate(16400))
    assert [each.value["op"] for each in asked.changes()] == ["t"]


def test_the_end_of_a_transaction_counts_both_records_of_a_changed_key():
    log = debezium(transactions=True)
    log.transaction(TABLE, insert(*ROW), update((2, *ROW[1:]), key=(1, None, None, None, None)))
    end = log.records()[-1].value
    assert (end["status"], end["event_count"]) == ("END", 3)
    assert end["data_collections"] == [{"data_collection": "public.accounts", "event_count": 3}]


def test_a_batch_is_cut_ahead_of_a_changed_key_and_never_within():
    log = debezium(target_bytes=1)
    long = "x" * 9000
    keys = [update((number + 1, "A", long, None, 1), key=(number, *[None] * 4)) for number in range(1, 9)]
    log.transaction(TABLE, insert(1, "A", long, None, 1), *keys)
    batches = log.batches()
    assert len(batches) > 1
    for batch in batches:
        ops = [json.loads(value).get("op") if value else None for value in batch.values]
        assert [op for op in ops if op is not None] in (["c"], ["c", "d", "c"], ["d", "c"])
        assert all(index < len(batch) for index in batch.headers)


def test_a_changed_key_that_is_too_large_is_a_delete_and_a_dead_letter():
    log = debezium(largest_megabytes=1, on_too_large="dead-letter")
    huge = "x" * (1 << 20)
    log.transaction(TABLE, update((2, "Bo", huge, None, 8), key=(1, None, None, None, None)))
    deleted, letter = [each.value for each in log.changes()]
    assert (deleted["before"]["id"], "too_large" in deleted) == (1, False)
    assert (letter["after"], letter["former_key"]) == ({"id": 2}, {"id": 1})
    assert letter["unchanged"] == ["name", "big", "photo", "count"]
    assert letter["source"]["position"] == deleted["source"]["position"]
