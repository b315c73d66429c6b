"""`headrace ask` against a whole edge with its database, over a bridge and Kafka."""

import json
import re
import sys

import pytest

from headrace import command
from tests.bridge.asked_edges import SOURCE
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge", "tests.bridge.fix_asked"]


@pytest.fixture
def headrace(monkeypatch, capsys):
    """Return a function that runs the command in this process; gives exit code, output and complaints."""

    def run(*arguments) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["headrace", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command.main()
        printed = capsys.readouterr()
        return ended.value.code, printed.out, printed.err

    return run


def without_figures(text):
    """Return what was printed without what changes from moment to moment."""
    return re.sub(r"[\d.,/:A-F]+|\s+", " ", text)


def test_an_edge_answers_what_the_commands_in_its_region_print(asked, headrace):
    config = ["--config", asked.path]
    eventually(
        lambda: headrace("ask", SOURCE, "status", *config, "--timeout", "20")[0] == 0, saying="the edge captures"
    )

    code, printed, _ = headrace("ask", SOURCE, "status", *config, "--json")
    answer = json.loads(printed)
    assert (code, answer["part"], answer["ready"]) == (0, "edge", True)
    assert [each["source"] for each in answer["sources"]] == [SOURCE]
    assert SOURCE in headrace("ask", SOURCE, "status", *config)[1]

    code, printed, _ = headrace("ask", SOURCE, "doctor", *config, "--json")
    there = asked.edge.command("doctor", "--json")
    assert code == there.returncode
    assert [each["check"] for each in json.loads(printed)] == [each["check"] for each in json.loads(there.stdout)]
    assert without_figures(headrace("ask", SOURCE, "doctor", *config)[1]) == without_figures(
        asked.edge.command("doctor").stdout
    )

    code, printed, _ = headrace("ask", SOURCE, "snapshot", "public.accounts", *config)
    assert (code, "public.accounts" in printed) == (0, True)

    def copied():
        code, printed, _ = headrace("ask", SOURCE, "snapshot", "--status", *config, "--json")
        return code == 0 and "done" in printed and json.loads(printed)

    assert eventually(copied, saying="the table is copied") == json.loads(
        asked.edge.command("snapshot", "--status", "--json").stdout
    )
