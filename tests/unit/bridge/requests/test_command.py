"""`headrace ask`: what a command line becomes, whose file it takes, and what is printed."""

import json

import pytest

from bridge.requests import worker
from bridge.requests.command import ask
from headrace import requests
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected
from headrace.findings import Finding
from headrace.requests import Content, decode_request, encode, parts

BRIDGE = """
[kafka]
bootstrap = "127.0.0.1:1"
[interconnect]
listen = "127.0.0.1:0"
[streams.bank.sources]
"jakarta/bank" = [0]
"""
LAKE = """
[lake]
root = "lake"
[kafka]
bootstrap = "127.0.0.1:1"
prefix = "test"
[streams.bank]
sources = ["jakarta/bank"]
"""


class Wire:
    """Kafka, in which an edge answers at once."""

    answers: list = []
    asked: list = []
    named: list = []

    def __init__(self, _connection, topics):
        self.named[:] = topics

    def send(self, _key, value, _seconds):
        self.asked[:] = [decode_request(value)]

    def read(self, _seconds):
        # Another's answer, what is none, and ours.
        outcome, content = self.answers[0]
        return [b"{}", *(encode(part) for part in parts(self.asked[0], outcome, content))]

    def close(self):
        pass


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(worker, "AskingTopics", Wire)

    def ask_(*arguments, file=BRIDGE + "[requests]\n", answer=None, outcome="done"):
        path = tmp_path / "file.toml"
        path.write_text(file)
        Wire.answers = [(outcome, answer or Content())]
        with pytest.raises(SystemExit) as ended:
            ask.main([*arguments, "--config", str(path)], standalone_mode=False)
        return ended.value.code, capsys.readouterr().out

    return ask_


def test_the_doctor_of_an_edge_is_printed_as_in_the_region(run):
    results = [Finding("wal_level", "wrong", "wal_level is replica", "ALTER SYSTEM")._asdict()]
    code, said = run("jakarta/bank", "doctor", answer=Content(exit_code=3, data=results))
    assert (code, "wal_level is replica" in said, "1 wrong" in said) == (3, True, True)
    code, said = run("jakarta/bank", "doctor", "--json", answer=Content(data=results))
    assert (code, json.loads(said)) == (0, results)
    assert Wire.asked[0].kind == "doctor"
    assert "@" in Wire.asked[0].caller
    assert Wire.named == ["headrace.requests", "headrace.answers"]


def test_the_lakes_file_will_do(run):
    status = {"part": "edge", "running": True, "version": "1", "ready": True, "address": "there", "sources": []}
    code, said = run("jakarta/bank", "status", file=LAKE, answer=Content(data=status))
    assert (code, Wire.named) == (0, ["test.requests", "test.answers"])
    assert "edge 1 at there, ready" in said


def test_snapshots_are_steered(run):
    answer = Content(data={"lines": ["a", "\x1b[2Jb"], "plan": {"paused": True}})
    _, said = run("jakarta/bank", "snapshot", "--status", answer=answer)
    # What a terminal would obey is not printed.
    assert said == "a\n\\x1b[2Jb\n"
    _, said = run("jakarta/bank", "snapshot", "--status", "--json", answer=answer)
    assert json.loads(said) == {"paused": True}
    run("jakarta/bank", "snapshot", "public.a", "public.b", "--replace", answer=answer)
    asked = Wire.asked[0].arguments
    assert (asked["do"], asked["tables"], asked["replace"]) == ("copy", ["public.a", "public.b"], True)
    run("jakarta/bank", "snapshot", "public.a", "--cancel", answer=answer)
    assert (Wire.asked[0].arguments["do"], Wire.asked[0].arguments["tables"]) == ("cancel", ["public.a"])


@pytest.mark.parametrize(
    "arguments",
    [
        ["paris/bank", "status"],
        ["jakarta/bank", "status", "public.a"],
        ["jakarta/bank", "doctor", "--all"],
        ["jakarta/bank", "snapshot"],
        ["jakarta/bank", "snapshot", "--all", "public.a"],
        ["jakarta/bank", "snapshot", "--status", "--pause"],
        ["jakarta/bank", "snapshot", "--pause", "--replace"],
    ],
)
def test_a_command_line_that_does_not_fit_asks_nobody(run, arguments):
    Wire.asked.clear()
    with pytest.raises(ConfigurationError):
        run(*arguments)
    assert Wire.asked == []


def test_a_bridge_that_carries_no_requests_says_so(run):
    with pytest.raises(ConfigurationError, match=r"has no \[requests\]"):
        run("jakarta/bank", "status", file=BRIDGE)


def test_a_refusal_and_an_answer_that_is_not_understood_are_errors(run):
    with pytest.raises(NeedsOperator, match="does not allow"):
        run("jakarta/bank", "snapshot", "--all", outcome="refused", answer=Content(message="does not allow it"))
    with pytest.raises(CorruptInput, match="not understood"):
        run("jakarta/bank", "status", answer=Content(data=[1]))


def test_nobody_answers(run, monkeypatch):
    monkeypatch.setattr(requests, "GRACE_SECONDS", 0)
    monkeypatch.setattr(Wire, "read", lambda _self, _seconds: [])
    with pytest.raises(NotConnected, match="no answer within 1 s"):
        run("jakarta/bank", "status", "--timeout", "1")
