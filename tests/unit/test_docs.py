"""What the documents show is true: commands exist with their options, configuration is accepted, links lead somewhere."""

import re
import shlex
import subprocess
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from headrace.command import root
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("infra/*/README.md"), *ROOT.glob("examples/*/*.md")]
)
NAMES = [str(page.relative_to(ROOT)) for page in PAGES]
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
#: The commands of pyproject.toml: what is installed may be older.
COMMANDS = {
    name: EntryPoint(name, value, "headrace.commands").load()
    for name, value in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"][
        "headrace.commands"
    ].items()
}

#: What a block of each kind of file is put into: most show only the sections in question.
BASES: dict[type, dict[str, Any]] = {
    EdgeFile: {
        "source": {
            "name": "jakarta/bank",
            "postgresql": {"host": "db", "database": "bank", "user": "headrace", "password": "env:P"},
        },
        "interconnect": {"url": "amqps://bridge.example:5671"},
        "state": {"folder": "state"},
    },
    BridgeFile: {
        "kafka": {"bootstrap": "kafka:9092"},
        "interconnect": {"listen": "0.0.0.0:5671"},
        "streams": {"bank": {"sources": {"jakarta/bank": [0], "london/bank": [1]}}},
    },
    LakeFile: {
        "lake": {"root": "/srv/lake"},
        "kafka": {"bootstrap": "kafka:9092"},
        "streams": {"bank": {"sources": ["jakarta/bank"]}},
    },
}


def blocks(page, *kinds):
    return [text for kind, text in FENCE.findall(page.read_text()) if kind in kinds]


def commands_of(page):
    """Return each `headrace …` of a page: the lines of its shell blocks, and the code in its text."""
    text = page.read_text()
    shown = "\n".join(blocks(page, "", "sh", "shell", "bash")).replace("\\\n", " ").splitlines()
    lines = [
        line[line.index("headrace ") :]
        for line in shown
        if re.match(r"\s*(\$ )?(sudo |docker compose .*)?headrace (?!.*──)", line)
    ]
    return lines + re.findall(r"`(headrace [^`]+)`", FENCE.sub("", text))


def check_command(line):
    """Raise click.UsageError unless the command exists and takes the options that the line gives it."""
    words = shlex.split(line.replace("…", "").replace("'", "'"), comments=True)
    for end in ("<", ">", "|", "&&", ";", "&"):
        words = words[: words.index(end)] if end in words else words
    command: click.Command = root
    context = click.Context(root, info_name="headrace")
    arguments = words[1:]
    while isinstance(command, click.Group):
        rest = command.make_parser(context).parse_args(list(arguments))[1]
        if not rest or rest[0].startswith("["):
            return
        found = (COMMANDS if command is root else {}).get(rest[0]) or command.get_command(context, rest[0])
        if found is None:
            raise click.UsageError(f"no such command {rest[0]!r}")
        command, arguments = found, rest[1:]
        context = click.Context(command, parent=context, info_name=rest[0])
    arguments = [word for word in arguments if not re.fullmatch(r"\.\.\.|\[.*|.*\]", word)]
    try:
        command.make_parser(context).parse_args(list(arguments))
    except click.BadOptionUsage as error:
        # A text may name an option alone: `headrace certs --interior-router`.
        if not error.message.endswith("requires an argument.") or error.option_name != arguments[-1]:
            raise


@pytest.mark.parametrize("name", NAMES)
def test_every_command_that_a_page_shows_exists_with_its_options(name):
    for line in commands_of(ROOT / name):
        try:
            check_command(line)
        except (click.UsageError, ValueError) as error:
            pytest.fail(f"{name}: {line}: {error}")


def test_a_command_or_an_option_that_does_not_exist_is_found():
    for line in (
        "headrace bridge rum --config bridge.toml",
        "headrace bridge run --confik bridge.toml",
        "headrace edge init --adopt=",
    ):
        with pytest.raises((click.UsageError, AssertionError)):
            check_command(line)
    assert len(commands_of(ROOT / "docs" / "edge.md")) > 20
    assert set(COMMANDS) >= {"edge", "bridge", "lake", "verify", "status"}


def test_v15_no_document_installs_a_name_that_is_not_registered():
    """V15: pip would look for `headrace`, which anybody may register."""
    named = re.compile(
        r"""(?:pip3? install|uv add|pipx install|uvx)\s.*?(?<![\w/.-])headrace(?!-[\w*{.]*\S*\.whl)(?![\w/-])"""
    )
    assert named.search("pip install 'headrace[edge]'")
    assert named.search("pip install --upgrade headrace")
    assert not named.search('pip install "$(ls dist/headrace-*.whl)[edge]"')
    code = [
        path
        for folder in ("headrace", "edge", "bridge", "spark_jobs", "infra")
        for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    for page in (*PAGES, ROOT / "CONTRIBUTING.md", *code):
        lines = [line for line in page.read_text().splitlines() if named.search(line.partition(" #")[0])]
        assert not lines, f"{page}: {lines}"


def test_q11_the_quick_start_changes_the_setting_and_not_its_comment(tmp_path):
    (command,) = re.findall(r"^sed .*$", (ROOT / "docs/quickstart.md").read_text(), re.MULTILINE)
    lines = [
        line
        for block in blocks(ROOT / "docs/quickstart.md", "")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("headrace edge new")
    ]
    words = [str(tmp_path / word) if word == "edge.toml" else word for word in shlex.split(lines[0])[1:]]
    CliRunner().invoke(root, words, catch_exceptions=False)
    before = (tmp_path / "edge.toml").read_text().splitlines()
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True)
    after = (tmp_path / "edge.toml").read_text().splitlines()
    changed = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    assert changed == [('sslmode = "verify-full"', 'sslmode = "prefer"')]


def merged(base: dict[str, Any], shown: dict[str, Any]) -> dict[str, Any]:
    """Return a file with what a block shows in it; a source has one engine, an interconnect one direction."""
    base = dict(base)
    if {"mariadb", "mysql", "debezium"} & set(shown):
        base.pop("postgresql", None)
    if {"url", "listen"} & set(shown):
        base.pop("listen", None)
    for key, value in shown.items():
        base[key] = merged(base[key], value) if isinstance(value, dict) and isinstance(base.get(key), dict) else value
    return base


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(toml, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"' if isinstance(value, str) else str(value)


def accepted(shown: dict[str, Any], folder: Path) -> list[str]:
    """Return why each kind of file refuses a block; empty when one kind takes it."""
    refused = []
    for kind, base in BASES.items():
        file = folder / "shown.toml"
        file.write_text("".join(f"{toml(key)} = {toml(each)}\n" for key, each in merged(base, shown).items()))
        try:
            load(file, kind)
        except ConfigurationError as error:
            refused.append(f"{kind.__name__}: {error.message}")
        else:
            return []
    return refused


@pytest.mark.parametrize("name", [name for name, page in zip(NAMES, PAGES, strict=True) if blocks(page, "toml")])
def test_every_piece_of_configuration_is_accepted(name, tmp_path):
    for block in blocks(ROOT / name, "toml"):
        refused = accepted(tomllib.loads(block), tmp_path)
        assert not refused, f"{name}:\n{block}\n" + "\n".join(refused)


def test_a_field_that_does_not_exist_is_found(tmp_path):
    assert accepted({"interconnect": {"listne": "0.0.0.0:5671"}}, tmp_path)


def slug(heading):
    """Return the anchor that GitHub and MkDocs make of a heading."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def anchors(page):
    return {slug(heading) for heading in re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_within_the_repository_leads_to_a_page_and_a_heading(name):
    page = ROOT / name
    for target in re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        assert there.exists(), f"{name}: {target}"
        assert not anchor or anchor in anchors(there), f"{name}: {target}: no such heading"


def test_every_alert_has_a_runbook_with_what_check_and_fix():
    rules = [
        rule
        for file in (ROOT / "infra/monitoring/alerts").iterdir()
        for group in yaml.safe_load(file.read_text())["groups"]
        for rule in group["rules"]
    ]
    for rule in rules:
        path, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", (ROOT / path).read_text(), re.MULTILINE | re.DOTALL))
        assert anchor == rule["alert"].lower()
        section = sections[rule["alert"]]
        assert "**What.**" in section
        assert re.search(r"^\*\*Check(\.|, fix\.)\*\* .+", section, re.MULTILINE), rule["alert"]
        assert re.search(r"^\*\*(Fix|Check, fix)\.\*\* .+", section, re.MULTILINE), rule["alert"]
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbooks.md").read_text(), re.MULTILINE)
    assert len(headings) == len(set(headings))
    assert set(headings) == {rule["alert"] for rule in rules}


#: `path::name` of a test.
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


@pytest.mark.parametrize(("table", "least"), [("Promises", 25), ("Threats", 12)])
def test_each_promise_and_each_threat_names_a_test_that_exists(table, least):
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8").partition(f"## {table}\n")[2].partition("## ")[0]
    rows = [line for line in text.splitlines() if line.startswith("|") and not line.startswith("|---")][1:]
    assert len(rows) >= least
    for row in rows:
        tests = TEST.findall(row)
        assert tests, row
        for path, name in tests:
            assert re.search(rf"^def {name}\(", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE), (
                f"{path}::{name}"
            )
