"""All doors: each is used, has hostile input here, and counts who sent it; metrics show that."""

import re
from pathlib import Path

import pytest

from bridge.service import BridgeService
from edge.answers.handlers import EdgeService
from edge.observability.figures import Figures
from headrace import doors
from headrace.errors import CorruptInput, NeedsOperator
from tests.hostile import bodies, load_requests, peers, test_amqp, test_records

ROOT = Path(__file__).parents[2]
#: The hostile input of each door, by name; tests of this folder feed all of it.
CASES = {
    "amqp": [
        peers.close_link_badly, peers.close_session_badly, peers.close_connection_badly, peers.attach_many,
        test_amqp.RogueBridge,
    ],
    "message": peers.MESSAGES,
    "memory": [
        test_amqp.test_a_message_above_the_limit_is_refused_while_it_arrives,
        test_amqp.test_who_has_most_of_what_is_arriving_loses_its_link_when_there_is_too_much,
        test_amqp.test_a_delivery_of_single_bytes_is_read_whole,
        test_amqp.test_a_message_above_the_limit_does_not_end_headrace_receive,
    ],
    "batch": bodies.BATCHES,
    "request": test_records.REQUESTS,
    "answer": test_records.ANSWERS,
    "delivery": test_records.RECORDS,
    "withheld": test_records.WITHHELD,
    "registry": [*test_records.SCHEMAS, *test_records.REGISTRY_ANSWERS],
    # sent by tests/unit/spark_jobs/serve/test_load_door.py
    "load": load_requests.REQUESTS,
}  # fmt: skip


def sources():
    return {
        path: path.read_text()
        for part in ("headrace", "edge", "bridge", "spark_jobs")
        for path in (ROOT / part).rglob("*.py")
    }


def test_every_door_has_hostile_input():
    assert CASES.keys() == doors.ALL.keys()
    assert all(len(cases) >= 3 for cases in CASES.values())


def test_doors_are_in_one_list_and_each_is_used():
    texts = sources()
    paths = {path for path, text in texts.items() if re.search(r"\bDoor\(", text)}
    assert paths == {ROOT / "headrace/doors.py"}
    used = set(re.findall(r"doors\.([A-Z]+)\.refuse\(", "".join(texts.values())))
    assert used == {name.upper() for name in doors.ALL}


def test_a_door_knows_a_bounded_number_of_names():
    door = doors.Door("x", "a thing")
    for number in range(5000):
        door.refuse(CorruptInput("x"), f"{number:04d}" * 100)
    assert len(door.refused) == 1001
    assert door.refused[doors.OTHERS] == 4000
    assert all(len(name) <= 100 for name in door.refused)


def test_an_error_that_is_ours_passes_a_door_as_it_is():
    error = NeedsOperator("a", hint="b")
    assert doors.Door("x", "a thing").refuse(error, "who") is error


@pytest.mark.parametrize("error", [RecursionError("5"), KeyError("5"), UnicodeDecodeError("utf-8", b"5", 0, 1, "5")])
def test_an_error_that_nobody_expected_is_answered_and_logged_by_class_and_place(error, caplog):
    door = doors.Door("x", "a thing")
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - as doors do.
        answer = door.refuse(caught, "who")
    assert isinstance(answer, CorruptInput)
    assert answer.message == f"a thing cannot be processed ({type(error).__name__} at {doors.place_of(error)})"
    assert caplog.messages == [f"a thing of who is refused: {type(error).__name__} at {doors.place_of(error)}"]
    assert doors.place_of(error).startswith("tests/hostile/test_doors.py:")


@pytest.mark.parametrize(
    ("prefix", "service"),
    [
        ("bridge", BridgeService(dict, dict, lambda: True, str, {}, {})),
        ("edge", EdgeService("oslo/one", Figures(), str)),
    ],
)
def test_metrics_and_status_have_each_door_with_the_names_of_who_sent_what_was_refused(prefix, service):
    for _ in range(50):
        doors.BATCH.refuse(CorruptInput("x"), "oslo/rogue")
    text = service.collector.text().decode()
    assert re.search(
        rf'^headrace_{prefix}_refused_inputs_total\{{door="batch",sender="oslo/rogue"\}} [1-9]', text, re.MULTILINE
    )
    assert ("oslo/rogue", "batch") in {(each.sender, each.door) for each in service.status().refused}
