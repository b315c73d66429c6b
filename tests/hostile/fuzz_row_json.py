"""The C files of edge/compiled under AddressSanitizer: `python -m tests.hostile.fuzz_row_json --minutes 5`, with gcc.

Random changes of random tables, of pgoutput and of a binlog, good and damaged, are decoded by them and by the functions in
Python, with the same bytes or error. The module is compiled into a scratch folder, and Python runs with the sanitizer loaded
first; every object is a block of malloc's, so that a byte read behind a message is noticed.
"""

import argparse
import importlib.util
import logging
import os
import random
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from edge import compiled
from edge.mysql import rows_compiled as images_in_c
from edge.postgres import rows
from tests.unit.edge.mysql import row_cases as events
from tests.unit.edge.postgres import row_cases as messages

_SOURCES = sorted(map(str, Path(compiled.__file__).parent.glob("*.c")))
_FLAGS = (
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
_MODULE = "ROW_JSON"


def _compiled(folder: str) -> str:
    """Compile the module with the sanitizers; return its file."""
    module = f"{folder}/row_json.so"
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", *_FLAGS, "-Wno-missing-field-initializers", include, *_SOURCES, "-o", module], check=True)
    return module


def _under_sanitizer(module: str) -> int:
    """Run this command again with the sanitizer loaded first; return its exit code."""
    names = ("libasan.so", "libubsan.so")
    libraries = [subprocess.check_output(["gcc", f"-print-file-name={name}"], text=True).strip() for name in names]
    environment = {
        **os.environ,
        _MODULE: module,
        "LD_PRELOAD": " ".join(libraries),
        "PYTHONMALLOC": "malloc",
        # Python itself keeps what it has at its end.
        "ASAN_OPTIONS": "detect_leaks=0",
    }
    command = [sys.executable, "-m", "tests.hostile.fuzz_row_json", *sys.argv[1:]]
    return subprocess.run(command, env=environment, check=False).returncode


def _load(file: str) -> Any:
    spec = importlib.util.spec_from_file_location("row_json", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fuzz(minutes: float, seed: int) -> None:
    """Decode cases for some minutes; print how many."""
    until, number, counts = time.monotonic() + minutes * 60, 0, Counter[str]()
    while time.monotonic() < until:
        decode = (_decode_messages, _decode_events, _copy_rows)[number % 3]
        counts.update(decode(random.Random(f"{seed}/{number}"), f"case {number} of seed {seed}"))
        number += 1
    print(f"{number} tables, {', '.join(f'{count} {what}' for what, count in counts.items())}; seed {seed}", flush=True)


def _decode_messages(chance: random.Random, named: str) -> Iterator[str]:
    for case in messages.cases(chance):
        expected = messages.outcome(case.exact, case.message)
        if messages.outcome(case.in_c, case.message) != expected:
            raise SystemExit(f"{named}: another outcome of {case.message!r}")
        yield "messages refused" if isinstance(expected[0], type) else "messages"


def _decode_events(chance: random.Random, named: str) -> Iterator[str]:
    for case in events.cases(chance):
        made = events.decode_in_c(case)
        if made is not None and made != events.outcome(case):
            raise SystemExit(f"{named}: another outcome of {case.images!r}")
        if made is not None and events.changes(case, in_c=True) != events.changes(case, in_c=False):
            raise SystemExit(f"{named}: other changes of {case.images!r}")
        yield "events left to Python" if made is None else "events"


def _copy_rows(chance: random.Random, named: str) -> Iterator[str]:
    copy = messages.a_copy(chance)
    for number, each in (copy.made_in_c({}) if copy is not None else {}).items():
        assert copy is not None
        if each != copy.made_exactly(number):
            raise SystemExit(f"{named}: another outcome of {copy.rows[number]!r}")
        yield "rows copied"


def main() -> int:
    """Compile, and fuzz under the sanitizer."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    if _MODULE in os.environ:
        logging.disable(logging.CRITICAL)
        rows.module = images_in_c.module = _load(os.environ[_MODULE])
        fuzz(options.minutes, options.seed)
        return 0
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder:
        return _under_sanitizer(_compiled(folder))


if __name__ == "__main__":
    sys.exit(main())
