"""The rules of a run, seen in runs of their own."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

CHECKOUT = Path(__file__).parents[3]


def run(tmp_path, body, *options, **environment):
    (tmp_path / "test_it.py").write_text("import pytest, subprocess\n" + body)
    surroundings = {name: value for name, value in os.environ.items() if name != "CI"}
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.rules.fix_strict",
            "-p",
            "no:randomly",
            "-c",
            "/dev/null",
            "-rA",
            *options,
            str(tmp_path),
        ],
        cwd=CHECKOUT,
        env={**surroundings, **environment, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_skip_is_a_failure_in_continuous_integration_only(tmp_path):
    # Given every way not to run a test, or not to care for its outcome.
    body = """
def test_called(): pytest.skip()
@pytest.mark.skip
def test_marked(): pass
@pytest.mark.xfail
def test_failing(): assert False
@pytest.mark.xfail
def test_passing(): pass
"""

    here, there = run(tmp_path, body), run(tmp_path, body, CI="true")

    assert here.returncode == 0, here.stdout
    assert "2 skipped, 1 xfailed, 1 xpassed" in here.stdout
    assert there.returncode == 1, there.stdout
    # One that is never set up counts as an error.
    assert "3 failed, 1 error in" in there.stdout
    assert "counts as a failure" in there.stdout


def test_skipped_module_is_a_failure_in_continuous_integration(tmp_path):
    done = run(tmp_path, "pytest.skip('for a reason', allow_module_level=True)", CI="true")

    assert done.returncode not in {0, 5}, done.stdout
    assert "for a reason" in done.stdout


@pytest.mark.parametrize("workers", [(), ("-n", "2")], ids=["one process", "workers"])
def test_process_that_outlives_the_session_fails_it_and_is_ended(tmp_path, monkeypatch, workers):
    body = """
def test_it():
    orphan = "nohup sleep 77 >/dev/null 2>&1 & echo $!"
    print("orphan", subprocess.run(["sh", "-c", orphan], capture_output=True, text=True).stdout)
"""
    monkeypatch.setenv("HEADRACE_TEST_PATIENCE", "0.2")

    done = run(tmp_path, body, *workers)

    assert done.returncode == 1, done.stdout
    assert "left behind" in done.stdout
    assert "sleep 77" in done.stdout
    pid = int(done.stdout.split("orphan ")[1].split()[0])
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("pipes", "workers", "code"), [(240, (), 0), (260, (), 1), (260, ("-n", "1"), 1)])
def test_many_descriptors_that_are_left_open_fail_the_session_with_their_kinds(tmp_path, pipes, workers, code):
    body = f"""
import os
def test_it():
    for _ in range({pipes}):
        os.pipe()
"""

    done = run(tmp_path, body, *workers)

    assert done.returncode == code, done.stdout
    assert len(re.findall(r"descriptors more than at the beginning; open are: 5\d\d pipe", done.stdout)) == code


def test_what_a_killed_worker_leaves_is_found_by_the_run_that_it_was_of(tmp_path, monkeypatch):
    body = """
def test_it():
    subprocess.run(["sh", "-c", "nohup sleep 78 >/dev/null 2>&1 &"])
    import os
    os._exit(1)
"""
    monkeypatch.setenv("HEADRACE_TEST_PATIENCE", "0.2")

    done = run(tmp_path, body, "-n", "1", "--max-worker-restart", "0")

    assert done.returncode == 1, done.stdout
    assert "sleep 78" in done.stdout.partition("left behind")[2]


def test_what_a_passing_test_has_to_show_is_at_the_end_of_a_run_with_workers(tmp_path):
    body = "def test_it(record_property): record_property('shown', 'seed 5')"
    done = run(tmp_path, body, "-p", "tests.rules.fix_shown", "-n", "2")
    assert done.returncode == 0, done.stdout
    assert "= shown by tests =" in done.stdout
    assert "\nseed 5\n" in done.stdout
