"""What an edge does with requests: which it handles, refuses or drops, at most once, and what of it is logged."""

import json
import logging
import threading
import time

import pytest

from edge.requests.service import AnswerOutbox, Handler, KnownRequests, RequestService
from headrace.amqp.links import Accept, Reject, Release
from headrace.errors import NeedsOperator
from headrace.requests import Content, Request, content_of, encode, new_request, parts
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"


class Clock:
    def __init__(self):
        self.now = time.time()

    def __call__(self):
        return self.now


class Setup:
    """A service whose handlers write down what they did."""

    def __init__(self, folder, allowed=("status", "snapshot")):
        self.done = []
        self.begun = threading.Event()
        self.clock = Clock()
        self.going = threading.Event()
        self.going.set()
        self.folder = folder
        self.service = RequestService(
            SOURCE,
            allowed,
            {
                "status": Handler(self.handle),
                "doctor": Handler(self.handle),
                "snapshot": Handler(self.handle, changes=True),
            },
            KnownRequests(folder, self.clock),
            clock=self.clock,
        )

    def handle(self, request):
        self.begun.set()
        assert self.going.wait(30)
        self.done.append(request.id)
        if request.arguments.get("fails"):
            raise NeedsOperator("no such table", hint="Name another.")
        if request.arguments.get("breaks"):
            raise ZeroDivisionError
        return 1, {"asked": request.kind}

    def ask(self, kind="status", **changes):
        request = new_request(SOURCE, kind, "ann@hq", changes.pop("seconds", 30), changes)
        return request, self.service.receive(encode(request))

    def answer(self):
        """Return outcome and content of the next answer."""
        taken = eventually(self.service.answers.take)
        self.service.answers.settled(taken[0])
        return taken[2].outcome, content_of(taken[2].content), taken[2].id


@pytest.fixture
def setups(tmp_path):
    made = []

    def make(**options):
        made.append(Setup(tmp_path, **options))
        return made[-1]

    yield make
    for each in made:
        each.going.set()
        each.service.stop(30)


def test_a_request_that_the_file_allows_is_handled_and_answered(setups, caplog):
    caplog.set_level(logging.INFO)
    setup = setups()
    request, outcome = setup.ask()
    assert outcome == Accept()
    assert setup.answer() == ("done", Content(exit_code=1, data={"asked": "status"}), request.id)
    assert f"request {request.id} from 'ann@hq': 'status'" in caplog.text


@pytest.mark.parametrize("kind", ["doctor", "erase-everything"])
def test_a_kind_that_the_file_does_not_list_is_refused_and_the_log_names_the_caller(setups, caplog, kind):
    setup = setups()
    setup.ask(kind)
    outcome, content, _ = setup.answer()
    assert (outcome, setup.done) == ("refused", [])
    assert f"does not allow {kind!r}" in content.message
    assert "'ann@hq'" in caplog.text
    assert kind in caplog.text


def test_a_kind_that_is_allowed_and_that_this_release_does_not_handle_is_refused(setups):
    setup = setups(allowed=("status", "verify"))
    setup.ask("verify")
    outcome, content, _ = setup.answer()
    assert (outcome, content.message) == ("refused", "the edge's release does not handle 'verify'")


def test_a_forged_request_is_rejected(setups):
    setup = setups()
    other = encode(new_request("london/bank", "status", "mallory", 30))
    assert isinstance(setup.service.receive(other), Reject)
    assert isinstance(setup.service.receive(b"\x00 no request"), Reject)
    newer = json.dumps({"version": 9}).encode()
    result = setup.service.receive(newer)
    assert isinstance(result, Reject)
    assert "version 9" in result.description
    assert setup.service.answers.is_empty


def test_a_request_beyond_its_deadline_is_dropped_whenever_that_is_noticed(setups):
    setup = setups()
    setup.ask(seconds=-1)
    assert setup.answer()[0] == "expired"
    setup.going.clear()
    setup.ask()
    assert setup.begun.wait(30)
    waiting, _ = setup.ask()
    setup.clock.now += 60
    setup.going.set()
    # The first one was being handled: its answer comes too late, and nobody gets it.
    outcome, _, request = setup.answer()
    assert (outcome, request) == ("expired", waiting.id)
    assert setup.service.answers.is_empty
    assert len(setup.done) == 1


def test_a_deadline_too_far_ahead_is_refused(setups):
    setup = setups()
    request = new_request(SOURCE, "status", "ann", 30)
    late = Request(id=request.id, source=SOURCE, kind="status", caller="ann", deadline=request.deadline + 86_400_000)
    setup.service.receive(encode(late))
    assert setup.answer()[0] == "refused"


def test_a_request_that_comes_twice_is_handled_once(setups):
    setup = setups()
    request, _ = setup.ask("snapshot")
    assert setup.answer()[0] == "done"
    assert setup.service.receive(encode(request)) == Accept()
    # Also after a restart of the edge, where one that only reads is handled again.
    again = setups()
    again.service.receive(encode(request))
    outcome, content, _ = again.answer()
    assert (outcome, again.done, "once at most" in content.message) == ("repeated", [], True)
    assert setup.service.answers.is_empty
    assert (setup.folder / "requests.json").stat().st_mode & 0o777 == 0o600


def test_ids_are_forgotten_after_their_deadlines(setups):
    setup = setups()
    setup.ask("snapshot")
    assert setup.answer()[0] == "done"
    setup.clock.now += 3600
    setup.service.receive(encode(new_request(SOURCE, "snapshot", "ann", 7200)))
    assert setup.answer()[0] == "done"
    assert len(json.loads((setup.folder / "requests.json").read_text())) == 1


def test_what_changes_something_is_not_done_where_its_id_cannot_be_kept(setups):
    setup = setups()
    (setup.folder / "requests.json").write_text("damaged")
    setup.ask("snapshot")
    outcome, content, _ = setup.answer()
    assert (outcome, setup.done, content.exit_code) == ("failed", [], 4)


def test_a_flood_costs_bounded_memory_and_is_answered(setups):
    setup = setups()
    setup.going.clear()
    outcomes = [setup.ask()[1] for _ in range(2000)]
    taken = sum(outcome == Accept() for outcome in outcomes)
    assert isinstance(outcomes[-1], Release)
    assert taken < 500
    setup.going.set()
    answered = [setup.answer()[0] for _ in range(taken)]
    assert answered.count("done") <= 9
    assert answered.count("busy") == taken - answered.count("done")
    # When the flood is over all is as before.
    setup.ask()
    assert setup.answer()[0] == "done"


def test_an_error_ends_the_request_alone(setups, caplog):
    setup = setups()
    setup.ask(fails=True)
    outcome, content, _ = setup.answer()
    assert (outcome, content.exit_code, content.message, content.hint) == (
        "failed",
        3,
        "no such table",
        "Name another.",
    )
    setup.ask(breaks=True)
    outcome, content, _ = setup.answer()
    assert (outcome, content.exit_code) == ("failed", 70)
    setup.ask()
    assert setup.answer()[0] == "done"


def test_parts_are_sent_again_in_order_until_they_are_accepted():
    outbox = AnswerOutbox()
    request = new_request(SOURCE, "status", "ann", 30)
    outbox.put(parts(request, "done", Content(data="x" * 80_000)), request.deadline)
    first, second = outbox.take(), outbox.take()
    outbox.settled(first[0])
    outbox.returned(second[0])
    assert outbox.take() == second
    third = outbox.take()
    outbox.lost()
    assert [outbox.take(), outbox.take()] == [second, third]
    for number in (second[0], third[0]):
        outbox.settled(number)
    while (taken := outbox.take()) is not None:
        outbox.settled(taken[0])
    assert outbox.is_empty
