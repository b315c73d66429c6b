"""The command: quick help, short errors, an exit code for each kind of error."""

import os
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headrace import command
from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected


def headrace(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "headrace", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


def test_help_names_every_part_and_imports_none():
    script = (
        "import sys; from headrace.command import root\n"
        "try: root.main(['--help'], standalone_mode=False)\n"
        "finally: print(sorted({'edge', 'bridge', 'spark_jobs', 'infra', 'proton', 'pyspark'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    for part in ["bridge", "demo", "down", "edge", "lake", "status", "up", "verify"]:
        assert f"\n  {part} " in done.stdout
    assert done.stdout.endswith("[]\n")


@pytest.mark.parametrize("arguments", [["--help"], ["config", "reference"]])
def test_a_reader_that_is_gone_gives_no_status_of_pythons(arguments):
    """Q14."""
    end, other = os.pipe()
    os.close(end)
    done = subprocess.run(
        [sys.executable, "-m", "headrace", *arguments],
        stdout=other,
        stderr=subprocess.PIPE,
        timeout=60,
        check=False,
        env={name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"},
    )
    os.close(other)
    assert done.returncode == 3
    assert b"Traceback" not in done.stderr
    assert b"Exception ignored" not in done.stderr


@pytest.mark.parametrize(
    ("called", "module", "extra"),
    [("lake", "pyspark.sql", "spark"), ("lake", "confluent_kafka", "spark"), ("status", "psutil", "local")],
)
def test_an_extra_that_is_not_installed_is_named(monkeypatch, capsys, called, module, extra):
    """Q6: it ended in a traceback and exit code 70."""

    @click.command()
    def failing():
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)

    monkeypatch.setattr(command._Parts, "get_command", lambda *_: failing)
    monkeypatch.setattr(sys, "argv", ["headrace", called])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert f"'headrace {called}' needs the package {module.partition('.')[0]!r}" in said
    assert f'.whl)[{extra}]"' in said


def read_extras():
    """Return the names of the packages of each extra."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    return {extra: {canonicalize_name(Requirement(need).name) for need in extras[extra]} for extra in extras}


def test_every_package_of_an_extra_leads_to_an_extra_that_has_it():
    extras, modules = read_extras(), packages_distributions()
    shipped = set().union(*(packages for extra, packages in extras.items() if extra != "dev"))
    for module, distributions in modules.items():
        if packages := {canonicalize_name(name) for name in distributions} & shipped:
            assert packages & extras[command._EXTRA_OF_MODULE[module]], module


def test_the_console_has_what_reads_the_lake():
    """Without PyArrow it knew no retention of streams of many topics, and did not say so."""
    extras = read_extras()
    assert extras["console"] >= extras["reader"]


def test_a_module_that_no_extra_has_is_a_defect(monkeypatch):
    @click.command()
    def failing():
        raise ModuleNotFoundError("No module named 'headrace.nothing'", name="headrace.nothing")

    monkeypatch.setattr(command._Parts, "get_command", lambda *_: failing)
    monkeypatch.setattr(sys, "argv", ["headrace", "lake"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == 70


def test_what_an_edge_says_in_an_error_steers_no_terminal(monkeypatch, capsys):
    @click.command()
    def failing():
        raise NeedsOperator("a table\x1b[2J is gone", hint="Name\x07 another.\nOr none.")

    monkeypatch.setattr(sys, "argv", ["headrace", "status"])
    monkeypatch.setattr(command.root, "get_command", lambda _context, _name: failing)
    with pytest.raises(SystemExit):
        command.main()
    said = capsys.readouterr().err
    assert "a table\\x1b[2J is gone" in said
    assert "Name\\x07 another.\nOr none." in said


def test_a_wrong_command_line_exits_with_2():
    done = headrace("nonsense")
    assert done.returncode == 2
    assert "nonsense" in done.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigurationError("the file is wrong", hint="mend it"), 2),
        (NeedsOperator("the slot is gone", hint="run init"), 3),
        (CorruptInput("a byte is wrong", hint="look"), 4),
        (NotConnected("no answer", hint="start it"), 5),
    ],
)
def test_an_error_is_one_sentence_with_a_hint_and_its_code(monkeypatch, capsys, error, code):
    @click.command()
    def failing():
        raise error

    monkeypatch.setattr(command._Parts, "get_command", lambda *_: failing)
    monkeypatch.setattr(sys, "argv", ["headrace", "failing"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == code
    assert capsys.readouterr().err == f"headrace: {error.message}\nWhat to do: {error.hint}\n"


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize(
    ("error", "options", "code"),
    [(ZeroDivisionError("a defect"), [], 70), (NeedsOperator("the slot is gone"), ["--verbose"], 3)],
)
def test_an_error_that_nobody_expected_has_a_code_of_its_own(monkeypatch, capsys, form, error, options, code):
    """1 means that the answer is no, as of a comparison: a supervisor restarts after a crash, and not after that (O5)."""

    @click.command()
    def failing():
        raise error

    monkeypatch.setattr(command._Parts, "get_command", lambda *_: failing)
    monkeypatch.setattr(sys, "argv", ["headrace", "--log-format", form, *options, "failing"])
    monkeypatch.setattr("headrace.logs._Setting.structured", False)
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == code
    assert "Traceback" in capsys.readouterr().err or form == "json"


@pytest.mark.parametrize(("ending", "code"), [(lambda context: context.exit(1), 1), (lambda context: None, 0)])
def test_the_code_that_a_command_ends_with_is_the_process_s(monkeypatch, ending, code):
    @click.command()
    @click.pass_context
    def ended(context):
        ending(context)

    monkeypatch.setattr(command._Parts, "get_command", lambda *_: ended)
    monkeypatch.setattr(sys, "argv", ["headrace", "ended"])
    with pytest.raises(SystemExit) as stopped:
        command.main()
    assert stopped.value.code == code
