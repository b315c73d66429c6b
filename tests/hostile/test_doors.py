"""All doors: each is used, has hostile input here, and counts who sent it; metrics show that."""

import ast
import re
from pathlib import Path

import pytest

from bridge.service import BridgeService
from edge.answers.handlers import EdgeService
from edge.observability.figures import Figures
from headrace import doors
from headrace.errors import CorruptInput, NeedsOperator
from tests.hostile import (
    bodies,
    load_requests,
    peers,
    test_amqp,
    test_console,
    test_endpoint,
    test_records,
    test_rogue_bridge,
)
from tests.integration.lake import test_lake_avro_records, test_lake_bronze, test_lake_envelope

ROOT = Path(__file__).parents[2]
#: The hostile input of each door, by name; tests of this folder feed all of it.
CASES = {
    "amqp": [
        peers.close_link_badly, peers.close_session_badly, peers.close_connection_badly, peers.attach_many,
        test_rogue_bridge.RogueBridge,
    ],
    "message": peers.MESSAGES,
    "memory": [
        test_amqp.test_a_message_above_the_limit_is_refused_while_it_arrives,
        test_amqp.test_who_has_most_of_what_is_arriving_loses_its_link_when_there_is_too_much,
        test_amqp.test_a_delivery_of_single_bytes_is_read_whole,
        test_rogue_bridge.test_a_message_above_the_limit_does_not_end_headrace_receive,
    ],
    "batch": bodies.BATCHES,
    "request": test_records.REQUESTS,
    "answer": test_records.ANSWERS,
    "delivery": test_records.RECORDS,
    "withheld": test_records.WITHHELD,
    "registry": [*test_records.SCHEMAS, *test_records.REGISTRY_ANSWERS],
    # sent by tests/unit/spark_jobs/serve/test_load_door.py
    "load": load_requests.REQUESTS,
    "bronze": [
        test_lake_bronze.test_s3_s4_what_is_no_record_or_names_another_source_is_quarantined_and_the_stream_goes_on,
        test_lake_envelope.test_s3_s4_what_is_no_record_and_what_is_another_sources_is_divided_from_the_rest,
        test_lake_avro_records.test_s4_a_record_that_is_not_of_its_schema_is_divided_from_the_rest,
    ],
    "console": [*test_console.REQUESTS, *test_console.SMUGGLED],
    "endpoint": test_endpoint.REQUESTS,
}  # fmt: skip


def sources():
    return {
        path: path.read_text()
        for part in ("headrace", "edge", "bridge", "spark_jobs")
        for path in (ROOT / part).rglob("*.py")
    }


#: Where any error is taken outside of a door, with the reason. This list shrinks: whatever comes in has a door.
OUTSIDE = {
    "bridge/amqp/receiver.py:Receiver._listen": "the bridge ends with it",
    "bridge/service.py:Threads.start.loop": "the bridge ends with it",
    "bridge/bridge.py:_finish": "the other steps of an end are taken all the same",
    "bridge/kafka/entries.py:call_within.run": "raised in the caller's thread",
    "bridge/positions/former.py:_take_over.work": "raised in the caller's thread",
    "bridge/lanes/part.py:Part.take": "its answer is made at the door of batches",
    "edge/answers/verify_session.py:Verification._run": "a database's answer fails one verification",
    "edge/answers/verify_session.py:Verification._try_step": "as above, one step",
    "edge/progress/spooler.py:Spooler._run": "raised in the capturing thread",
    "edge/requests/service.py:RequestService._handle": "what a request asked for fails, with its answer",
    "edge/snapshot/chunk_reader.py:Worker._run": "raised in the capturing thread",
    "headrace/amqp/connection.py:Connector._run": "its owner ends with it",
    "headrace/amqp/transport.py:Loop._handle": "its owner takes it to the door of AMQP, or it is raised",
    "headrace/command.py:_run": "a command ends with it",
    "headrace/console/bridges.py:Bridges.ask": "a bridge's answer is shown as a problem of its own",
    "headrace/console/lake.py:Lake.look": "a problem of the lake is shown",
    "headrace/console/lake.py:Retention._follow": "as above, of one figure",
    "headrace/console/server.py:Console._record": "a defect of the charts alone",
    "headrace/console/table_detail.py:TableDetails.read": "a problem of the lake is shown",
    "spark_jobs/bronze/load.py:Follower.run": "raised in the load's thread",
    "spark_jobs/lineage.py:_emit": "no load fails because of a receiver of lineage",
    "spark_jobs/query/metastore.py:after_load": "what is published is published",
    "spark_jobs/serve/load_door.py:LoadDoor._cancel": "the load ends at its next step",
    "spark_jobs/serve/load_door.py:LoadDoor._run": "a defect ends its load, and not the server",
    "spark_jobs/serve/loader.py:Loader._refusing": "raised, unless Spark has ended",
    "spark_jobs/serve/server.py:Follower.answer": "what a session asked ends its question",
    "spark_jobs/silver/expectations.py:_count": "no load fails because of an expectation",
    "spark_jobs/silver/table_load.py:apply_without_misfits": "what one source sent decides: the others go on, or the table fails",
    "spark_jobs/silver/table_load.py:_try": "what a part of the sources sent decides which of them are held back",
    "spark_jobs/silver/tables_load.py:run.apply": "a table fails alone: its sources decide what is in it",
    "spark_jobs/verify/command.py:_connect_all": "one source's verdict",
    "spark_jobs/verify/command.py:verify": "one source's verdict",
    "spark_jobs/verify/report.py:record": "a verdict is shown, recorded or not",
    "spark_jobs/verify/verify.py:_report": "one table's verdict",
}


class Handlers(ast.NodeVisitor):
    """Finds where any error is taken, in one file, that is neither raised again nor taken to a door."""

    def __init__(self, path):
        self.places, self._names = [], [str(path.relative_to(ROOT))]
        self.visit(ast.parse(path.read_text()))

    def visit(self, node):
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named:
            self._names.append(node.name)
        if isinstance(node, ast.ExceptHandler) and self._takes_any(node) and not self._is_passed_on(node):
            self.places.append(f"{self._names[0]}:{'.'.join(self._names[1:])}")
        self.generic_visit(node)
        if named:
            self._names.pop()

    def _takes_any(self, node):
        kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        return any(kind is None or ast.unparse(kind) in {"Exception", "BaseException"} for kind in kinds)

    def _is_passed_on(self, node):
        return isinstance(node.body[-1], ast.Raise) or re.search(r"\bdoors\.[A-Z]+\.refuse\(", ast.unparse(node))


def test_any_error_is_taken_at_a_door_or_at_a_place_of_the_list():
    places = {each for path in sources() for each in Handlers(path).places}
    assert sorted(places) == sorted(OUTSIDE), "take it to a door; what is there no more leaves the list"


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
        ("bridge", BridgeService(dict, dict, lambda: True, str, {}, {}, dict)),
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
