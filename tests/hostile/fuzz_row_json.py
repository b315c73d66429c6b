"""edge/postgres/row_json.c under AddressSanitizer: `python -m tests.hostile.fuzz_row_json --minutes 5`, with gcc.

Random changes of random tables, good and damaged, are decoded by it and by the exact functions in Python, with the same bytes or
error. The module is compiled into a scratch folder, and Python runs with the sanitizer loaded first; every object is a block of
malloc's, so that a byte read behind a message is noticed.
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
from pathlib import Path
from typing import Any

from edge.postgres import rows_in_c
from tests.unit.edge.postgres.row_cases import cases, outcome

_SOURCE = Path(rows_in_c.__file__).with_name("row_json.c")
_FLAGS = (
    "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror",
)  # fmt: skip
_MODULE = "ROW_JSON"


def _compiled(folder: str) -> str:
    """Compile the module with the sanitizers; return its file."""
    module = f"{folder}/row_json.so"
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", *_FLAGS, "-Wno-missing-field-initializers", include, str(_SOURCE), "-o", module], check=True)
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
    until, number, refused, count = time.monotonic() + minutes * 60, 0, 0, 0
    while time.monotonic() < until:
        for case in cases(random.Random(f"{seed}/{number}")):
            expected = outcome(case.exact, case.message)
            if outcome(case.in_c, case.message) != expected:
                raise SystemExit(f"case {number} of seed {seed}: another outcome of {case.message!r}")
            count += 1
            refused += isinstance(expected[0], type)
        number += 1
    print(f"{count} changes of {number} tables, of which {refused} were refused; seed {seed}", flush=True)


def main() -> int:
    """Compile, and fuzz under the sanitizer."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().getrandbits(32))
    options = parser.parse_args()
    if _MODULE in os.environ:
        logging.disable(logging.CRITICAL)
        rows_in_c.module = _load(os.environ[_MODULE])
        fuzz(options.minutes, options.seed)
        return 0
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder:
        return _under_sanitizer(_compiled(folder))


if __name__ == "__main__":
    sys.exit(main())
