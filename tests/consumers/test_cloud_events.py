"""The CloudEvents SDK for Python reads the records of a real edge as events."""

import json
from datetime import UTC, datetime

import pytest

from tests.consumers.environment import ENVIRONMENT, EXAMPLES
from tests.consumers.test_by_key import DDL, WORK, lines, run
from tests.kafka.reading import read_committed

#: The usual records, and Debezium's, whose changed keys have headers of their own.
RECORDS = {"usual": "tombstones = true", "debezium": 'profile = "debezium"\ntruncates = true'}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("records", RECORDS)
def test_every_change_is_read_as_an_event_of_its_own(records, stream):
    running = stream(DDL, ["accounts"], f"cloudevents = true\n{RECORDS[records]}")
    running.work(WORK, "1")
    written = [record for record in read_committed(running.bootstrap, running.topic_of("accounts")) if record.value]

    events = read(running, running.topic_of("accounts"), "all")

    changes = [json.loads(record.value) for record in written]
    assert [event["data"] for event in events] == changes
    assert len({(event["source"], event["id"]) for event in events}) == len(changes)
    assert [event["id"].removesuffix("-create") for event in events] == [it["source"]["position"] for it in changes]
    kinds = {"c": "create", "u": "update", "d": "delete", "t": "truncate"}
    assert [event["type"] for event in events] == [f"headrace.change.{kinds[change['op']]}" for change in changes]
    assert {event["type"] for event in events} >= {f"headrace.change.{kinds[op]}" for op in "cudt"}
    assert {(event["source"], event["subject"], event["specversion"]) for event in events} == {
        ("/headrace/jakarta/bank", "public.accounts", "1.0")
    }
    times = [datetime.fromtimestamp(change["source"]["ts_ms"] / 1000, UTC) for change in changes]
    assert [datetime.fromisoformat(event["time"]) for event in events] == times

    # by its type alone a reader has the deletes, and in the stream's own topic it finds the marker
    deletes = read(running, running.topic_of("accounts"), "deletes", "--type", "headrace.change.delete")
    assert deletes == [event for event in events if event["type"] == "headrace.change.delete"]
    assert [event["subject"] for event in read(running, running.topic, "own")] == ["headrace.marker"]


def read(running, topic, group, *more):
    words = ["--bootstrap", running.bootstrap, "--topic", topic, "--group", f"{topic}-{group}", *more]
    return lines(run([str(ENVIRONMENT / "bin" / "python"), str(EXAMPLES / "cloud_events.py"), *words]))
