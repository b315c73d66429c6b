"""Records of the binlog as CloudEvents."""

import pytest

from edge.snapshot.ports import DedupWindow
from headrace.configuration.edge import Records
from headrace.schema import COPY_BEGINS
from tests.unit.edge.mysql.events import feed, make_decoder, mariadb_gtid, query, rotate, rows
from tests.unit.edge.mysql.test_decoder import ACCOUNTS, ANA, NULL, transaction
from tests.unit.edge.mysql.test_snapshot_decoder import Stream
from tests.unit.edge.records.cloud_events import Event, batch_of, events, named

TABLE = "bank.accounts"
OTHER = b"\0" + b"\2\0\0\0" + b"\4Budi"
CHANGES = [rows(30, 2, ANA), rows(31, 2, ANA + ANA), rows(31, 2, ANA + OTHER), rows(32, 2, OTHER)]


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("profile", ["headrace", "debezium"])
def test_each_change_is_an_event_of_its_kind(form, profile):
    usual = {"types": "headrace"} | ({"interval": "text", "hstore": "text"} if profile == "debezium" else {})
    decoder, batcher = make_decoder(records=Records(format=form, profile=profile, cloudevents=True, **usual))
    feed(decoder, rotate(), *transaction(ACCOUNTS, *CHANGES))

    changed = [
        Event("00000002", "change.delete", TABLE, form), None, Event("00000002-create", "change.create", TABLE, form),
    ]  # fmt: skip
    if profile == "headrace":
        changed = [Event("00000002", "change.update", TABLE, form)]
    batch = batch_of(batcher)
    assert events(batch) == [
        None,
        Event("00000000", "change.create", TABLE, form),
        Event("00000001", "change.update", TABLE, form),
        *changed,
        Event("00000003", "change.delete", TABLE, form),
        *([None] if profile == "debezium" else []),
    ]
    assert named(batch, 1)["ce_time"] == "2026-01-31T09:15:00.000Z"


def test_rows_of_an_event_that_are_added_together_are_events():
    decoder, batcher = make_decoder(records=Records(cloudevents=True))
    feed(decoder, rotate(), *transaction(ACCOUNTS, rows(30, 2, ANA + NULL), rows(31, 2, NULL + NULL)))
    assert [event.type for event in events(batch_of(batcher)) if event] == ["change.create"] * 2 + ["change.update"]


def test_rows_of_a_copy_and_truncates_are_events_and_marks_are_none(tmp_path):
    stream = Stream(tmp_path, cloudevents=True)
    stream.decoder.mark_copy(stream.copied, COPY_BEGINS)
    stream.decoder.put(stream.chunk((b"1", b"a"), (b"2", None)), DedupWindow())
    stream.feed(mariadb_gtid(1, 46, standalone=True), query("truncate table bank.accounts", 140, database="bank"))

    values = [event for event in events(batch_of(stream.batcher)) if event]
    assert [(event.id, event.type, event.subject) for event in values] == [
        ("00000001", "change.read", TABLE),
        ("00000002", "change.read", TABLE),
        ("00000000", "change.truncate", TABLE),
    ]
