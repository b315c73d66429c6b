"""Requests for loads: answered, cancelled, waiting in turn, bounded; what is no request, and no failure, ends the server."""

import socket
import threading
import time
from contextlib import contextmanager, suppress

import msgspec
import pytest

from headrace import doors, warm_loads
from headrace.errors import NeedsOperator
from headrace.warm_loads import Answer, Request
from spark_jobs.serve import load_door
from spark_jobs.serve.load_door import LoadDoor
from tests.hostile.load_requests import REQUESTS
from tests.rules.waiting import eventually


class Loads:
    """Loads that last until they may go on; streams are named for how they end."""

    def __init__(self):
        self.begun, self.ended, self.cancelled = [], [], []
        self.may_end = threading.Event()
        self.may_end.set()

    def run(self, tag, request, on_progress):
        self.begun.append(request.stream)
        try:
            on_progress("bronze", 1, 2)
            while not self.may_end.wait(0.01):
                if tag in self.cancelled:
                    # As a cancelled job is an error of Spark's.
                    raise RuntimeError("cancelled")
            on_progress("silver", 2, 2)
        finally:
            self.ended.append(request.stream)
        if request.stream == "stopped":
            raise NeedsOperator("a table stopped", hint="look")
        if request.stream == "defect":
            raise KeyError("a value")
        return Answer(report={"silver": request.stream}, text="done\n")

    def follow(self, tag, request, on_report, stopped):
        self.begun.append(request.stream)
        for number in range(2):
            on_report(Answer(report={"silver": number}, text=f"load {number}\n", goes_on=True))
        while not stopped.wait(0.01):
            if request.stream == "stopped":
                raise NeedsOperator("no partition", hint="look")
        self.may_end.wait(20)
        self.ended.append(request.stream)
        return Answer()

    def cancel(self, tag):
        self.cancelled.append(tag)


@pytest.fixture
def loads():
    return Loads()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "loads"


def ask(folder, stream, seen=None):
    """Return the answer to a request; None where the server gives none."""
    with warm_loads.connect(folder) as connection:
        return warm_loads.load(
            connection,
            Request(config="c", stream=stream),
            lambda *done: seen.append(done) if seen is not None else None,
        )


@contextmanager
def asking(folder, stream):
    """Give what holds the answer of a request once there is one, and the connection."""
    answers, connection = [], warm_loads.connect(folder)
    request = Request(config="c", stream=stream)
    thread = threading.Thread(target=lambda: answers.append(warm_loads.load(connection, request, lambda *_: None)))
    thread.start()
    try:
        yield answers, connection
    finally:
        thread.join(20)
        connection.close()


def test_a_load_is_answered_with_progress_report_and_failure(folder, loads):
    seen = []
    loads.may_end.clear()
    with LoadDoor(folder, loads):
        with warm_loads.connect(folder) as connection:
            request = Request(config="c", stream="bank")

            def on_progress(*done):
                seen.append(done)
                loads.may_end.set()

            assert warm_loads.load(connection, request, on_progress) == Answer(report={"silver": "bank"}, text="done\n")
        assert seen[0] == ("bronze", 1, 2)
        # a load that fails is answered as the command ends, and the server goes on
        with pytest.raises(Exception, match="a table stopped") as failed:
            ask(folder, "stopped").check()
        assert (failed.value.exit_code, failed.value.hint) == (3, "look")
        with pytest.raises(Exception, match=r"defect \(KeyError at tests/unit") as failed:
            ask(folder, "defect").check()
        assert failed.value.exit_code == 70
        assert "a value" not in failed.value.message
        assert ask(folder, "bank").report == {"silver": "bank"}
    assert warm_loads.connect(folder) is None


def test_a_load_whose_sender_goes_is_cancelled_and_a_retry_waits_for_its_end(folder, loads):
    loads.may_end.clear()
    with LoadDoor(folder, loads, wait_seconds=0.0), asking(folder, "bank") as (answers, connection):
        eventually(lambda: loads.begun == ["bank"], 20)
        with asking(folder, "bank") as (retried, _):
            connection.shutdown(socket.SHUT_RDWR)
            eventually(lambda: loads.begun == ["bank", "bank"], 20)
            assert loads.ended == ["bank"]
            assert len(set(loads.cancelled)) == 1
            loads.may_end.set()
    assert (answers, retried[0].report) == ([None], {"silver": "bank"})


@contextmanager
def following(folder, stream):
    """Give the reports of a load that goes on, its answer once there is one, and the connection."""
    reports, answers, connection = [], [], warm_loads.connect(folder)
    request = Request(config="c", stream=stream, every=15)
    given = (connection, request, lambda *_: None, reports.append)
    thread = threading.Thread(target=lambda: answers.append(warm_loads.load(*given)))
    thread.start()
    try:
        yield reports, answers, connection
    finally:
        thread.join(20)
        connection.close()


def test_a_load_that_goes_on_reports_until_its_sender_stops_it_and_others_load_next_to_it(folder, loads):
    with LoadDoor(folder, loads, wait_seconds=0.0), following(folder, "bank") as (reports, answers, connection):
        eventually(lambda: len(reports) == 2, 20)
        assert [(report.text, report.goes_on) for report in reports] == [("load 0\n", True), ("load 1\n", True)]
        # others do, and are not refused because of it
        assert ask(folder, "other").report == {"silver": "other"}
        assert (answers, loads.ended) == ([], ["other"])
        # what stops it for good is its answer
        with following(folder, "stopped") as (_, stopped, _other):
            eventually(lambda: stopped, 20)
        assert (stopped[0].failure.exit_code, stopped[0].failure.hint) == (3, "look")
        # and so is its end once its sender wants no more
        connection.shutdown(socket.SHUT_WR)
        eventually(lambda: answers, 20)
        assert (answers, loads.ended) == ([Answer()], ["other", "bank"])


def test_whoever_stops_a_load_that_goes_on_hears_of_it_until_its_end(folder, loads, monkeypatch):
    monkeypatch.setattr(load_door, "HEARTBEAT_SECONDS", 0.01)
    loads.may_end.clear()
    with LoadDoor(folder, loads), following(folder, "bank") as (reports, answers, connection):
        eventually(lambda: len(reports) == 2, 20)
        connection.settimeout(2)
        connection.shutdown(socket.SHUT_WR)
        eventually(lambda: len(loads.cancelled) > 30, 20)
        assert answers == []
        loads.may_end.set()
        eventually(lambda: answers, 20)
        assert answers == [Answer()]


def test_loads_that_go_on_end_with_the_server_and_are_left_to_processes_of_their_own(folder, loads):
    with LoadDoor(folder, loads):
        context = following(folder, "bank")
        reports, answers, _ = context.__enter__()
        eventually(lambda: len(reports) == 2, 20)
    context.__exit__(None, None, None)
    assert (answers, loads.ended) == ([None], ["bank"])


def test_a_load_of_another_stream_waits_a_while_and_is_then_left_to_a_process_of_its_own(folder, loads, caplog):
    loads.may_end.clear()
    with LoadDoor(folder, loads, wait_seconds=0.0), asking(folder, "large") as (answers, _):
        eventually(lambda: loads.begun == ["large"], 20)
        assert ask(folder, "bank") is None
        assert "it loads another stream" in caplog.text
        loads.may_end.set()
    assert answers[0].report == {"silver": "large"}
    assert loads.begun == ["large"]


def test_no_more_wait_than_there_may(folder, loads, monkeypatch):
    monkeypatch.setattr(load_door, "MOST", 2)
    loads.may_end.clear()
    with LoadDoor(folder, loads), asking(folder, "bank") as (one, _), asking(folder, "bank") as (two, _):
        eventually(lambda: ask(folder, "bank") is None, 20)
        loads.may_end.set()
    assert [answers[0].report for answers in (one, two)] == [{"silver": "bank"}] * 2


def test_a_request_that_gets_no_thread_is_left_to_a_process_of_its_own(folder, loads, monkeypatch, caplog):
    really, refused = threading.Thread.start, []

    def start(thread):
        if thread.name == "a request for a load" and len(refused) < load_door.MOST:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        really(thread)

    with LoadDoor(folder, loads):
        monkeypatch.setattr(threading.Thread, "start", start)
        assert [ask(folder, "bank") for _ in range(load_door.MOST)] == [None] * load_door.MOST
        # the next ones are taken again
        assert ask(folder, "bank").report == {"silver": "bank"}
    assert "it has no thread" in caplog.text
    assert loads.begun == ["bank"]


def test_a_refusal_is_read_although_the_request_could_not_be_sent_any_more(caplog):
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            theirs.sendall(msgspec.json.encode(Answer(refused="it is busy")) + b"\n")
        assert warm_loads.load(ours, Request(config="c", stream="bank"), lambda *_: None) is None
    assert "it is busy" in caplog.text


def test_a_load_without_progress_is_heard_of(folder, loads, monkeypatch):
    monkeypatch.setattr(load_door, "HEARTBEAT_SECONDS", 0.01)
    loads.may_end.clear()
    with LoadDoor(folder, loads), asking(folder, "bank") as (answers, _):
        eventually(lambda: loads.begun == ["bank"], 20)
        # one that waits, too
        with warm_loads.connect(folder) as connection:
            connection.sendall(msgspec.json.encode(Request(config="c", stream="other")) + b"\n")
            assert connection.recv(2) == b"\n"
        loads.may_end.set()
    assert answers[0].report == {"silver": "bank"}


@contextmanager
def served(answer):
    """Give a connection to a server, whose `answer` is called with its end of it, in a thread, once it has a request."""
    ours, theirs = socket.socketpair()
    ours.settimeout(20)

    def serve():
        with theirs, suppress(OSError):
            theirs.recv(load_door.LONGEST)
            answer(theirs)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with ours:
            yield ours
    finally:
        thread.join(20)


def test_a_server_that_is_silent_is_not_waited_for(monkeypatch, folder, caplog):
    monkeypatch.setattr(warm_loads, "_SILENT_SECONDS", 0.1)
    # a server that is frozen still has its socket, at which the system lets clients wait
    folder.mkdir(mode=0o700)
    with socket.socket(socket.AF_UNIX) as frozen:
        frozen.bind(str(folder / "socket"))
        frozen.listen()
        assert ask(folder, "bank") is None
    assert "broke off the load of bank (TimeoutError)" in caplog.text


def test_a_load_that_is_not_understood_any_more_has_ended_before_the_next_one_begins():
    ended = []

    def answer(connection):
        connection.sendall(b"no answer\n" * 3)
        # the sender says that it takes no answer any more, and the load is cancelled
        while connection.recv(100):
            pass
        ended.append("bank")

    with served(answer) as connection:
        assert warm_loads.load(connection, Request(config="c", stream="bank"), lambda *_: None) is None
        assert ended == ["bank"]


def test_an_error_of_the_output_is_not_the_servers(folder, loads):
    def on_progress(*_):
        raise BrokenPipeError("nobody reads the progress")

    loads.may_end.clear()
    with LoadDoor(folder, loads):
        with pytest.raises(BrokenPipeError, match="nobody reads"), warm_loads.connect(folder) as connection:
            warm_loads.load(connection, Request(config="c", stream="bank"), on_progress)
        eventually(lambda: loads.ended == ["bank"], 20)
    assert loads.cancelled


def test_a_server_that_ends_cancels_its_load_and_leaves_its_sender_without_an_answer(folder, loads):
    loads.may_end.clear()
    with LoadDoor(folder, loads):
        context = asking(folder, "bank")
        answers, _ = context.__enter__()
        eventually(lambda: loads.begun == ["bank"], 20)
    context.__exit__(None, None, None)
    assert (answers, loads.ended) == ([None], ["bank"])


@pytest.mark.parametrize("sent", REQUESTS)
def test_what_is_no_request_is_refused_and_counted(folder, loads, sent):
    before = sum(doors.LOAD.refused.values())
    with LoadDoor(folder, loads, seconds=2.0):
        with warm_loads.connect(folder) as connection:
            connection.settimeout(20)
            try:
                connection.sendall(sent)
                answer = msgspec.json.decode(connection.makefile("rb").readline(), type=Answer)
                assert "request for a load" in answer.refused
            except (BrokenPipeError, ConnectionResetError):
                # It has not read all that was sent.
                pass
        eventually(lambda: sum(doors.LOAD.refused.values()) == before + 1, 20)
        assert ask(folder, "bank").report == {"silver": "bank"}
    assert loads.begun == ["bank"]


def test_a_request_that_takes_its_time_is_refused(folder, loads):
    began = time.monotonic()
    with LoadDoor(folder, loads, seconds=0.3), warm_loads.connect(folder) as connection:
        connection.settimeout(20)
        answer = b""
        while not answer:
            try:
                connection.sendall(b"x")
                connection.settimeout(0.05)
                answer = connection.recv(10_000)
            except TimeoutError:
                assert time.monotonic() < began + 20
    assert b"within" in answer


def test_a_folder_that_others_may_enter_is_not_used(folder, loads, caplog):
    folder.mkdir(mode=0o755)
    with pytest.raises(NeedsOperator, match="not a folder of this user alone"), LoadDoor(folder, loads):
        pass
    assert warm_loads.connect(folder) is None
    assert "not a folder of this user alone" in caplog.text


def test_two_servers_do_not_take_the_loads_of_one_folder_and_a_dead_one_leaves_no_trace(folder, loads):
    with LoadDoor(folder, loads):
        with pytest.raises(NeedsOperator, match="cannot listen for loads"), LoadDoor(folder, loads):
            pass
        assert ask(folder, "bank").report == {"silver": "bank"}
    # what a killed server leaves
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(folder / "other"))
    (folder / "other").rename(folder / "socket")
    left.close()
    assert warm_loads.connect(folder) is None
    with LoadDoor(folder, loads):
        assert ask(folder, "bank").report == {"silver": "bank"}


def test_a_path_longer_than_that_of_a_socket_may_be_is_one(tmp_path, loads):
    folder = tmp_path / ("long" * 40)
    with LoadDoor(folder, loads):
        assert ask(folder, "bank").report == {"silver": "bank"}


def test_a_request_has_what_the_arguments_of_a_step_say():
    arguments = ["bank", "--config", "/l.toml", "--step", "silver"]
    step = Request(config="/l.toml", stream="bank", only="silver")
    assert warm_loads.request_of(arguments) == step
    assert warm_loads.request_of([*arguments, "--group", "2/4"]) == msgspec.structs.replace(step, group="2/4")
    assert warm_loads.request_of([*arguments, "--report-stopped"]) == msgspec.structs.replace(step, check=False)
