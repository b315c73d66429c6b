"""The Makefile: what set-up for a command makes is what the command needs."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_demo_has_the_jar_of_the_server_that_it_starts():
    """A fresh clone has none: the demo ended behind its loads, with "no headrace-serve.jar"."""
    made = subprocess.run(
        ["make", "--dry-run", "--always-make", "demo"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    assert "infra.release.java_build file-log-store serve" in made.stdout
    assert made.stdout.index("java_build file-log-store serve") < made.stdout.index("headrace demo")
