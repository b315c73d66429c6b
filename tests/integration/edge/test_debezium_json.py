"""What the class that runs Debezium's engine writes of keys, values and changes, beside Connect's own converter."""

import os
import random
import subprocess
from pathlib import Path

from edge.debezium.child import class_path
from edge.debezium.frames import Source
from infra.local.jars import present
from infra.release.java_build import COMPILER

_CHECK = Path(__file__).with_name("RecordJsonCheck.java")
#: Times by the name of their type, as Debezium writes them and as records have them.
_TIMES = [
    ("ZonedTimestamp", "2026-11-26T11:06:41.535880Z", "2026-11-26T11:06:41.53588Z"),
    ("ZonedTimestamp", "2026-11-26T11:06:40.000000Z", "2026-11-26T11:06:40Z"),
    ("ZonedTimestamp", "2026-11-26T11:06:40+00:00", "2026-11-26T11:06:40Z"),
    ("ZonedTimestamp", "2026-11-26T11:06:40.5+00", "2026-11-26T11:06:40.5Z"),
    ("ZonedTimestamp", "infinity", "infinity"),
    ("IsoTimestamp", "2026-11-26T11:06:41.536Z", "2026-11-26T11:06:41.536"),
    ("IsoTimestamp", "2026-11-26T11:06:00Z", "2026-11-26T11:06:00"),
    ("IsoDate", "2026-11-26Z", "2026-11-26"),
    ("IsoTime", "11:06:41.500Z", "11:06:41.5"),
    ("IsoTime", "11:06:41.", "11:06:41"),
    ("ZonedTime", "08:00:00Z", "08:00:00+00"),
    ("ZonedTime", "08:00:00.100+05:00", "08:00:00.1+05"),
    ("ZonedTime", "08:00:00+05:30", "08:00:00+05:30"),
    ("Interval", "1.50Z", "1.50Z"),
]


def run(*command: object, lines: str = "") -> str:
    """Run a program to its end; return what it prints."""
    ended = subprocess.run([*map(str, command)], input=lines, check=False, capture_output=True, text=True)
    assert ended.returncode == 0, (ended.stdout + ended.stderr)[-4000:]
    return ended.stdout


def test_keys_values_and_changes_are_what_connects_own_converter_writes_and_the_edge_reads(tmp_path):
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"HEADRACE_SEED={seed}")
    jars = os.pathsep.join(map(str, class_path("postgres")))
    options = "--release", "17", "-encoding", "UTF-8", "-nowarn", "-proc:none", "-d", tmp_path, "-classpath", jars
    run("java", "-jar", *present(COMPILER), *options, _CHECK)
    program = "java", "-XX:+UseSerialGC", "-Xmx200m", "-cp", f"{tmp_path}{os.pathsep}{jars}"
    times = "".join(f"io.debezium.time.{kind} {written}\n" for kind, written, _ in _TIMES)
    check = "headrace.debezium.RecordJsonCheck", seed, 5000, ",".join(Source.__struct_fields__)
    assert run(*program, *check, lines=times).splitlines() == [wanted for *_, wanted in _TIMES]
