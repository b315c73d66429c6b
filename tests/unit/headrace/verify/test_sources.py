"""What headquarters makes of the answers of an edge that it asks to verify, over topics in memory."""

import threading

import msgspec
import pytest

from headrace.errors import CorruptInput, NeedsOperator, NotConnected, Retryable
from headrace.requests import Content, decode_request, encode, parts
from headrace.verify import contract, sources
from headrace.verify.contract import Opened, Reply
from headrace.verify.sources import RemoteDatabase
from tests.rules.waiting import eventually

SOURCE = "jakarta/bank"
OPENED = Reply(state="done", result=Opened(engine="mysql", commit=7, place="binlog.000001:7"))


class EdgeTopics:
    """The topics, and an edge that answers as the test has it: with a reply, or with an outcome and a content."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self._came = []
        #: The steps that were asked for.
        self.asked = []
        self._lock = threading.Lock()

    def send(self, _key, value, _seconds):
        request = decode_request(value)
        step = contract.parse_arguments(request.arguments)
        with self._lock:
            self.asked.append(type(step.what).__name__)
            quiet = isinstance(step.what, contract.Keep | contract.Close)
            answer = Reply(state="done") if quiet else self._answers.pop(0)
        if isinstance(answer, Reply):
            answer = ("done", Content(data=msgspec.to_builtins(answer)))
        self._came += [encode(part) for part in parts(request, *answer)]

    def read(self, _seconds):
        came, self._came = self._came, []
        return came


def opened(*answers, **options):
    topics = EdgeTopics(*answers)
    return RemoteDatabase.connect(SOURCE, topics, seconds=5, placed=True, **options), topics


def test_a_step_is_asked_for_until_it_is_done_and_progress_is_that_of_the_edge():
    side_of = contract.ComparedTable(name="a.b")
    context, topics = opened(
        OPENED, Reply(state="working", rows=4), Reply(state="working", rows=9), Reply(state="done", rows=12, result=3)
    )
    rows = []
    with context as database:
        assert (database.place.commit, database.place.text) == (7, "binlog.000001:7")
        assert database.forms.__name__ == "headrace.verify.mysql.canonical"
        assert database.do(contract.Count(table=side_of), int, rows.append) == 3

    assert rows == [4, 9, 12]
    assert topics.asked == ["Open", "Count", "NoneType", "NoneType", "Close"]


def test_an_edge_that_is_never_done_is_given_up(monkeypatch):
    """One that always answered `working` kept headquarters for ever."""
    monkeypatch.setattr(sources, "_LONGEST_SECONDS", 1.0)
    monkeypatch.setattr(sources, "_WORKING_SECONDS", 0.05)
    context, topics = opened(OPENED, *[Reply(state="working", rows=rows) for rows in range(1000)])
    with (
        context as database,
        pytest.raises(NotConnected, match="jakarta/bank: the edge is still at the verification") as raised,
    ):
        database.do(contract.Count(table=contract.ComparedTable(name="a.b")), int)
    assert "--sample" in raised.value.hint
    # It is asked at a bounded pace, and to close.
    assert 2 <= topics.asked.count("NoneType") <= 20
    assert topics.asked[-1] == "Close"
    with pytest.raises(NotConnected):
        database.idle_since(1)


def test_an_edge_that_names_tables_without_end_is_given_up(monkeypatch):
    monkeypatch.setattr(sources, "_MOST_NAMES", 10)
    table = {"schema": "a", "name": "b", "columns": {"id": {"name": "int4"}}, "key": ["id"]}
    page = Reply(state="done", result={"tables": [table], "total": 1 << 40})
    context, _ = opened(OPENED, *[page] * 10)
    with context as database, pytest.raises(CorruptInput, match="more than 10 tables and columns"):
        database.tables()


def test_an_edge_that_refuses_is_named_with_the_other_way():
    for outcome, message, kind in (
        ("refused", "the edge's release does not handle 'verify'", NeedsOperator),
        ("expired", "the edge did not receive the request in time", NotConnected),
    ):
        context, topics = opened((outcome, Content(message=message, hint="Upgrade the edge.")))
        with pytest.raises(kind, match=message) as raised:
            context.__enter__()
        assert raised.value.hint.startswith("Upgrade the edge. ")
        assert 'via = "direct"' in raised.value.hint
        assert ("release 0.1" in raised.value.hint) == (kind is NotConnected)
        # It is not asked to close what it did not open.
        assert topics.asked == ["Open"]


def test_errors_of_the_region_are_those_of_their_class():
    busy = contract.Failure(kind="Retryable", message="the edge is at another verification")
    context, _ = opened(Reply(state="failed", failure=busy))
    with pytest.raises(Retryable, match="another verification"):
        context.__enter__()


BUSY = Reply(
    state="failed",
    failure=contract.Failure(kind="Retryable", message="the edge is at another verification, asked by ann"),
)


def test_an_edge_at_another_verification_is_waited_for_and_that_is_shown(monkeypatch):
    monkeypatch.setattr(sources, "_AGAIN_SECONDS", 0.01)
    shown = []
    context, topics = opened(BUSY, BUSY, OPENED, Reply(state="done", result=3), busy_seconds=60, on_busy=shown.append)
    with context as database:
        assert database.do(contract.Count(table=contract.ComparedTable(name="a.b")), int) == 3

    assert topics.asked == ["Open", "Open", "Open", "Count", "Close"]
    assert len(shown) == 2
    assert "asked by ann; waiting for it, 60 s at most" in shown[0]


def test_an_edge_at_another_verification_is_not_waited_for_longer_than_is_asked(monkeypatch):
    monkeypatch.setattr(sources, "_AGAIN_SECONDS", 0.01)
    context, topics = opened(*[BUSY] * 1000, busy_seconds=1)
    with pytest.raises(Retryable, match="another verification"):
        context.__enter__()
    assert 1 < len(topics.asked) < 1000


def test_an_answer_that_is_not_understood_is_no_verdict():
    context, _ = opened(Reply(state="done", result={"engine": "oracle"}))
    with pytest.raises(CorruptInput, match="not understood"):
        context.__enter__()


def test_a_session_is_kept_while_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(sources, "_KEEP_SECONDS", 0.1)
    context, topics = opened(OPENED)
    with context:
        eventually(lambda: "Keep" in topics.asked, saying="the session is kept")
