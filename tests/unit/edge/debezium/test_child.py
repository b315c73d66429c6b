"""The engine's process: its frames and its end, whatever it does; a program of ours takes the place of Java."""

import json
import os
import select
import signal
import time
from pathlib import Path

import pyspark
import pytest

from edge.debezium import child
from edge.debezium.child import EngineFailed, EngineProcess, Server, class_path
from edge.debezium.frames import RECORD, EngineRecord
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError
from tests.rules.waiting import eventually
from tests.unit.edge.debezium import engine_frames as wire
from tests.unit.edge.debezium import java_double

SECONDS = 30.0


@pytest.fixture
def start(tmp_path):
    """Return what starts a process that behaves so; they end with the test."""
    processes = []

    def begin(program):
        processes.append(EngineProcess(str(java_double.write(tmp_path, program)), 64, [tmp_path / "a.jar"], tmp_path))
        processes[-1].greet({"database.password": "s3cret"})
        return processes[-1]

    yield begin
    for process in processes:
        process.close()


def read(process, count):
    """Return so many frames; raise what ends the process."""
    frames, deadline = [], time.monotonic() + SECONDS
    while len(frames) < count:
        select.select([process.fileno()], [], [], deadline - time.monotonic())
        frames += process.read()
        assert time.monotonic() < deadline
    return frames


def end(process) -> ReplicationError:
    """Return the error that ends the process."""
    with pytest.raises(ReplicationError) as error:
        read(process, 1_000_000)
    return error.value


def test_settings_come_by_standard_input_and_acknowledgements_behind_them(start, tmp_path):
    process = start(
        """
say(hello())
settings, environment = line(), dict(os.environ)
assert 's3cret' not in str(arguments) + str(environment), arguments
say(frame("R", record("t", settings)), frame("R", record("t", line())))
say(frame("R", record("t", line())), frame("R", record("t", line())))
"""
    )
    process.begin(("key", "offset"))
    assert [json.loads(EngineRecord.parse(content).offset) for _, content in read(process, 2)] == [
        {"protocol": wire.PROTOCOL, "settings": {"database.password": "s3cret"}, "offset": None},
        ["key", "offset"],
    ]
    process.acknowledge(5)
    process.acknowledge(17)
    frames = read(process, 2)
    assert [kind for kind, _ in frames] == [RECORD, RECORD]
    assert (b"5\n" in frames[0][1], b"17\n" in frames[1][1]) == (True, True)
    assert [path.name for path in tmp_path.iterdir() if b'"s3cret"' in path.read_bytes()] == []


def test_what_the_server_is_like_is_known_before_anything_is_read(start):
    process = start("say(hello(log_end=77, has_slot=True))\nwhile line(): pass")
    assert process.hello(SECONDS) == Server(wire.SYSTEM, 77, True)
    early = start('say(hello(log_end=None), frame("R", heartbeat(5)))\nline()\nline()')
    with pytest.raises(CorruptInput, match="where to begin"):
        early.hello(SECONDS)
    failed = start('say(hello(log_end=None), frame("E", b"PSQLException (SQL state 28P01) FATAL: no"))')
    with pytest.raises(EngineFailed, match="28P01"):
        failed.hello(SECONDS)
    with pytest.raises(NotConnected, match="nothing was heard"):
        start("while line(): pass").hello(0.1)


def test_it_has_nothing_of_the_edges_environment_but_what_java_needs(start, monkeypatch):
    monkeypatch.setenv("NO_PASSWORD", "s3cret")
    given = ("PATH", "HOME", "LANG", "LC_ALL", "JAVA_HOME", "KRB5_CONFIG", "KRB5CCNAME")
    for name in given[1:]:
        monkeypatch.setenv(name, "C.UTF-8")
    process = start("""
settings = line()
say(hello(), frame("R", record("t", sorted(os.environ.keys() - {"PYTHONPATH", "PWD", "SHLVL", "_", "LC_CTYPE", "OLDPWD"}))))
""")
    ((_, content),) = read(process, 1)
    assert json.loads(EngineRecord.parse(content).offset) == sorted(given)


def test_a_process_ends_with_its_standard_input(start):
    process = start("say(hello())\nwhile line(): pass")
    process.close()
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_process_that_hangs_is_killed_and_waits_for_nobody(start):
    process = start("say(hello())\nimport signal\nsignal.pause()")
    for number in range(100_000):
        process.acknowledge(number)
    assert list(process.read()) == []
    began = time.monotonic()
    process.close()
    assert time.monotonic() - began < SECONDS
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_a_flood_of_errors_neither_blocks_it_nor_is_repeated(start, caplog):
    process = start(
        'say(hello())\nflood(200)\nsay(frame("R", heartbeat(5)))\nos.write(2, b"row value 4711")\nsys.exit(3)'
    )
    assert read(process, 1) == [(RECORD, wire.heartbeat(5))]
    error = end(process)
    assert "exit code 3" in error.message
    assert "4711" not in error.message + caplog.text


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("say(hello(1))", NeedsOperator, "another protocol"),
        ('say(frame("R", heartbeat(5)))', NeedsOperator, "another protocol"),
        ('say(frame("H", b"x"))', NeedsOperator, "another protocol"),
        ('say(b"Exception in thread main")', CorruptInput, "no frame"),
        ('say(hello(), frame("E", b"PSQLException (SQL state 28P01) FATAL: no"))', EngineFailed, "28P01"),
        ('say(hello(), frame("E", b"PSQLException (SQL state 57P03) starting"))', NotConnected, "57P03"),
        (
            'say(hello(), frame("E", b"The connector is trying to read change stream starting at x"))',
            NeedsOperator,
            "log",
        ),
        (
            'say(hello(), frame("E", b"ConnectException: SchemaHistoryDamaged: MalformedInputException"))',
            NeedsOperator,
            "the schema history in the state folder",
        ),
        ('os.write(2, b"java.lang.OutOfMemoryError: Java heap")\nsys.exit(3)', EngineFailed, "memory_megabytes"),
        ('os.write(2, b"java.lang.UnsupportedClassVersionError: a")\nsys.exit(1)', EngineFailed, "21 or newer"),
        ('os.write(2, b"Could not find or load main class")\nsys.exit(1)', EngineFailed, "jar is missing"),
        # A jar of another release: at its start, and once the engine runs.
        ('os.write(2, b"java.lang.NoSuchMethodError: a")\nsys.exit(1)', EngineFailed, "of another release"),
        ('say(hello(), frame("E", b"NoSuchFieldError"))', EngineFailed, "of another release"),
        ("sys.exit(9)", EngineFailed, "exit code 9"),
        ("os.kill(os.getpid(), 9)", NotConnected, "SIGKILL"),
    ],
)
def test_an_end_is_in_plain_words_and_its_class_says_who_acts(start, program, kind, words):
    error = end(start(program))
    assert (type(error), words in error.message) == (kind, True), error.message


def test_what_the_java_machine_says_itself_is_no_frame(tmp_path, monkeypatch):
    # A program that is here anyway, needs more, and writes nothing to its standard output.
    jars = [*Path(pyspark.__file__).parent.glob("jars/*.jar")]
    monkeypatch.setattr(child, "_CLASS", "org.apache.spark.deploy.SparkSubmit")
    process = EngineProcess("java", 4, jars, tmp_path)
    try:
        error = end(process)
    finally:
        process.close()
    assert (type(error), "raise [source.debezium] memory_megabytes" in error.message) == (EngineFailed, True)


def test_a_java_that_is_not_there_is_a_persons_matter(tmp_path):
    with pytest.raises(NeedsOperator, match="cannot be started"):
        EngineProcess("/nowhere/java", 64, [], tmp_path)


def test_jars_that_are_missing_are_named_with_what_fetches_them(tmp_path, monkeypatch):
    monkeypatch.setenv("HEADRACE_JARS", str(tmp_path))
    with pytest.raises(NeedsOperator) as error:
        class_path("postgres")
    assert "headrace jars debezium-postgres" in error.value.hint
    folder = tmp_path / "debezium-postgres"
    folder.mkdir()
    for name in ("debezium-embedded-3.6.0.Final.jar", "manifest.json"):
        (folder / name).touch()
    with pytest.raises(NeedsOperator, match=r"headrace-debezium\.jar"):
        class_path("postgres")
    ours = tmp_path / "debezium" / "headrace-debezium.jar"
    ours.parent.mkdir()
    ours.touch()
    assert class_path("postgres") == [ours, folder / "debezium-embedded-3.6.0.Final.jar"]


def test_a_killed_process_is_noticed(start):
    process = start("say(hello())\nwhile line(): pass")
    os.kill(eventually(lambda: process.pid), signal.SIGKILL)
    assert "SIGKILL" in end(process).message
