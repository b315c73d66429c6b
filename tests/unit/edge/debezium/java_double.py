"""A program in the place of Java, which writes frames to standard output as a test wants them: `java_double.py FILE …`.

The file is Python that is run with the functions of engine_frames.py, `say`, `line` and `flood`.
"""

import json
import os
import sys
from pathlib import Path

from tests.unit.edge.debezium import engine_frames

SCRIPT = """#!/bin/sh
exec env PYTHONPATH={root} {python} -m tests.unit.edge.debezium.java_double {file} "$@"
"""


def write(folder: Path, program: str) -> Path:
    """Return a program that behaves so."""
    (folder / "behaviour.py").write_text(program)
    java = folder / "java"
    root = Path(__file__).parents[4]
    java.write_text(SCRIPT.format(root=root, python=sys.executable, file=folder / "behaviour.py"))
    java.chmod(0o755)
    return java


def say(*frames: bytes) -> None:
    sys.stdout.buffer.write(b"".join(frames))
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    names = vars(engine_frames) | {
        "say": say,
        "line": sys.stdin.readline,
        "flood": lambda count: os.write(2, b"x" * 65536) and [os.write(2, b"x" * 65536) for _ in range(count)],
        "arguments": sys.argv[2:],
        "json": json,
        "sys": sys,
        "os": os,
    }
    exec(Path(sys.argv[1]).read_text(), names)
