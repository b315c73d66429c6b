"""Records of PostgreSQL as CloudEvents: which records are events, with which attributes, next to which other headers."""

import json

import pytest

from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.snapshot.ports import Chunk, DedupWindow
from headrace.schema import COPY_BEGINS
from tests.unit.edge.postgres.accounts import DEFAULT, FULL, primary_key
from tests.unit.edge.postgres.messages import (
    COMMIT,
    END,
    EPOCH,
    INT4,
    NOW_MS,
    Column,
    Log,
    begin,
    commit,
    delete,
    insert,
    logical_message,
    relation,
    truncate,
    update,
)
from tests.unit.edge.records.cloud_events import Event, events, named
from tests.unit.edge.snapshot.test_copies_after_alterations import snapshot_table

ROW, OLD = (1, "Ana", "x"), (1, "Ana", "x")
TABLE = "public.accounts"


def cloud(**settings):
    return Log(key_of=primary_key, **({"cloudevents": True} | settings))


def batch_of(log):
    (batch,) = log.batches()
    return batch


@pytest.mark.parametrize("form", ["json", "avro"])
def test_each_change_is_an_event_of_its_kind(form):
    log = cloud(format=form, transactions=True, tombstones=True)
    log.transaction(DEFAULT, insert(*ROW), update(ROW), delete(key=(1, None, None)), truncate(16400))
    log.transaction(insert(*ROW), insert(2, "B", None), commit_lsn=END + 8, end=END + 16)

    assert events(batch_of(log)) == [
        None,
        None,
        Event("00000000", "change.create", TABLE, form),
        Event("00000001", "change.update", TABLE, form),
        Event("00000002", "change.delete", TABLE, form),
        None,
        Event("00000003", "change.truncate", TABLE, form),
        None,
        None,
        Event("00000000", "change.create", TABLE, form),
        Event("00000001", "change.create", TABLE, form),
        None,
    ]


def test_a_change_has_the_time_of_its_commit_and_its_position_as_id():
    log = cloud()
    log.transaction(DEFAULT, insert(*ROW))
    assert named(batch_of(log), 1) == {
        "ce_specversion": "1.0",
        "ce_id": f"{EPOCH:08x}/{COMMIT:016x}/00000000",
        "ce_source": "/headrace/jakarta/bank",
        "ce_type": "headrace.change.create",
        "ce_subject": "public.accounts",
        "ce_time": "2026-01-31T09:15:00.250Z",
        "content-type": "application/json",
    }


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("whole", [True, False])
def test_delete_and_create_of_a_changed_key_have_ids_of_their_own_and_keep_their_headers(form, whole):
    log = cloud(format=form, key_change="delete-create", tombstones=True)
    changed = update((2, *ROW[1:]), old=OLD) if whole else update((2, *ROW[1:]), key=(1, None, None))
    log.transaction(FULL if whole else DEFAULT, changed, insert(3, "C", None))
    batch = batch_of(log)

    assert events(batch)[1:] == [
        Event("00000000", "change.delete", TABLE, form),
        None,
        Event("00000000-create", "change.create", TABLE, form),
        Event("00000001", "change.create", TABLE, form),
    ]
    others = {index: given for index, (name, given) in ((at, header[0]) for at, header in batch.headers.items())}
    assert [json.loads(others[index]) for index in (1, 2, 3)] == [{"id": 2}, {"id": 2}, {"id": 1}]
    assert [name for name, _ in batch.headers[2]] == ["__debezium.newkey"]


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("more", [{}, {"profile": "debezium", "time": "iso", "interval": "text", "hstore": "text"}])
def test_rows_of_a_copy_are_read_events_and_its_marks_are_none(form, more):
    log = cloud(format=form, **({"types": "headrace"} if more else {}), **more)
    log.decoder = SnapshotDecoder(
        source="jakarta/bank", database="bank", epoch=EPOCH, batcher=log.batcher, key_of=primary_key,
        records=log.decoder._records, policy=None,
    )  # fmt: skip
    announced = relation(Column("id", INT4, key=True), Column("note"))
    table = snapshot_table(announced)

    log.decoder.feed_placed(bytes(24) + begin(), NOW_MS)
    log.decoder.mark_copy(table, COPY_BEGINS)
    log.decoder.truncate(table)
    log.decoder.put(Chunk(table=table, rows=[b"1\ta", b"2\tb"], size=1, last=None, end=True), DedupWindow())
    log.decoder.feed_placed(bytes(24) + commit(), NOW_MS)

    values = [event for event in events(batch_of(log)) if event is not None]
    assert [(event.id, event.type, event.subject) for event in values] == [
        ("00000001", "change.truncate", TABLE),
        ("00000002", "change.read", TABLE),
        ("00000003", "change.read", TABLE),
    ]


def test_messages_are_events_about_their_prefix():
    log = cloud(messages=["*"])
    log.transaction(DEFAULT, insert(*ROW), logical_message(prefix="outbox"), logical_message(prefix=""))
    log.feed(logical_message(prefix='od"d', lsn=END + 100, transactional=False))
    batch = batch_of(log)

    assert events(batch) == [
        None,
        Event("00000000", "change.create", TABLE, "json"),
        Event("00000001", "message", "outbox", "json"),
        Event("00000002", "message", None, "json"),
        Event("00000000", "message", 'od"d', "json"),
    ]
    assert named(batch, 4)["ce_time"] == "2026-01-31T09:15:00.261Z"


def test_a_row_without_its_large_columns_is_an_event():
    log = cloud(on_too_large="dead-letter", largest_megabytes=1)
    log.transaction(DEFAULT, insert(1, "Ana", "x" * (1 << 20)), insert(2, "B", "x"))
    batch = batch_of(log)
    assert b'"too_large"' in batch.values[1]
    assert events(batch)[1] == Event("00000000", "change.create", TABLE, "json")


def test_names_and_texts_that_look_like_an_envelope_change_nothing():
    looks = '{"source":{"version":"1","schema":"a","table":"b","position":"x"},"op":"d"}'
    odd = relation(Column("id", INT4, key=True), Column("name"), schema='s"c', table='Kön","table":"x')
    log = cloud()
    log.transaction(odd, insert(1, looks), DEFAULT, insert(1, looks, looks))

    values = [event for event in events(batch_of(log)) if event]
    assert [(event.type, event.subject) for event in values] == [
        ("change.create", 's"c.Kön","table":"x'), ("change.create", TABLE),
    ]  # fmt: skip


def test_tables_take_turns_and_a_transaction_goes_on_in_the_next_batch():
    log = cloud(target_bytes=1)
    other = relation(Column("id", INT4, key=True), oid=7, table="other")
    pairs = [message for number in range(60) for message in (insert(number, "A", "x" * 300), insert(number, oid=7))]
    log.transaction(DEFAULT, other, *pairs)
    batches = log.batches()

    assert len(batches) > 1
    values = [event for batch in batches for event in events(batch) if event]
    assert [event.id for event in values] == [f"{number:08x}" for number in range(120)]
    assert [event.subject for event in values] == [TABLE, "public.other"] * 60
    times = {named(batch, index)["ce_time"] for batch in batches for index in batch.headers}
    assert times == {"2026-01-31T09:15:00.250Z"}


def test_nothing_is_an_event_unless_asked_for():
    log = Log(key_of=primary_key)
    log.transaction(DEFAULT, insert(*ROW))
    (sealed,) = log.sealed()
    assert sealed.properties["version"] == 1
