"""Blocks of the documents that are not only Headrace's commands: shell, make targets, modules, Python and YAML."""

import re
import subprocess

import pytest
import yaml

from tests.unit.test_docs import NAMES, ROOT, blocks

#: What pictures are drawn with, in blocks that are not for a shell.
DRAWN = re.compile("[─═│▲▶]")
TARGETS = set(re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def commands(page):
    return [text for text in blocks(page, "", "sh", "shell", "bash") if not DRAWN.search(text)]


def refused(text):
    """Return why bash cannot parse a text; it runs nothing."""
    return subprocess.run(["bash", "-n"], input=text, text=True, capture_output=True, check=False).stderr


def targets(text):
    """Return the targets of each `make …` at the start of a line or of code in a text."""
    return re.findall(r"(?:^|`)make ([a-z][\w-]*)(?=[ `\n]|$)", text, re.MULTILINE)


def modules(text):
    """Return each module of this repository that a text runs by `python -m`."""
    return re.findall(r"python3? -m ((?:tests|infra|spark_jobs|headrace|edge|bridge)\.[\w.]+)", text)


@pytest.mark.parametrize("name", NAMES)
def test_every_block_of_commands_can_be_parsed_by_a_shell(name):
    for block in commands(ROOT / name):
        assert not refused(block), f"{name}:\n{block}"


@pytest.mark.parametrize("name", [*NAMES, "CONTRIBUTING.md", "SECURITY.md"])
def test_every_make_target_and_module_of_a_page_exists(name):
    text = (ROOT / name).read_text()
    assert not set(targets(text)) - TARGETS, name
    for module in modules(text):
        path = ROOT / module.rstrip(".").replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), f"{name}: {module}"


def test_python_and_yaml_of_pages_can_be_parsed():
    for name in NAMES:
        for block in blocks(ROOT / name, "python"):
            compile(block, name, "exec")
        for block in blocks(ROOT / name, "yaml", "yml"):
            assert yaml.safe_load(block), name


def test_what_cannot_be_parsed_or_does_not_exist_is_found():
    assert refused("headrace lake sql 'SELECT 1\n")
    assert not refused("headrace edge run --config edge.toml 2> edge.log &\n")
    assert sum(len(commands(ROOT / name)) for name in NAMES) > 50
    assert targets("Run `make docs` here:\nmake demo    # all\nthey make such files") == ["docs", "demo"]
    assert {"docs", "demo"} <= TARGETS
    assert modules("`python -m infra.local.jars tests`") == ["infra.local.jars"]
