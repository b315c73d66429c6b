"""S15: what is printed holds names and messages of others, which are neither rich's markup nor commands of a terminal."""

import ast
import io
import json

import pytest

from headrace import findings, requests
from headrace.printable import echo, printable
from headrace.status.answer import Answer, SourceStatus
from headrace.status.table import screen
from headrace.terminal import Occasionally, Terminal, in_style, styled
from tests.unit.test_import_rules import PACKAGES, ROOT

#: A tag that closes nothing; two that are one together; a terminal's title, its clipboard, C1; text from right to left.
HOSTILE = (
    "x[/]",
    "a[/b",
    "c]",
    "[bold",
    ":smile:",
    "\x1b]0;x\x07",
    "\x1b]52;c;aGk=\x07",
    "\x9b2J",
    "\u202ex",
    "back\\",
    "\r",
)
_OWN = {"headrace/terminal.py", "headrace/printable.py"}


def printed(*what, width=400):
    out = Terminal(file=io.StringIO(), width=width, force_terminal=False)
    for each in what:
        out.print(each)
    return out.file.getvalue()


def is_plain(text):
    return not set(text) & set("\x1b\x07\x9b\r\u202e")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_is_printed_as_it_is_or_by_codes_in_strings_templates_tables_and_styles(name):
    line = styled("[bold]{}[/] {}: {:,}", name, f"{name}]", 1000)
    text = printed(f"{name} {name}", line, in_style(name, "red"), styled("[dim]{}[/] {}", in_style(name, "red"), name))
    assert text.splitlines()[0] == f"{printable(name)} {printable(name)}"
    assert text.splitlines()[1] == f"{printable(name)} {printable(name)}]: 1,000"
    assert is_plain(text)


def test_styles_are_those_of_the_template_and_of_its_values():
    line = styled("[bold]{}[/] {}", "name", in_style("state", "red"))
    assert [(line.plain[span.start : span.end], span.style) for span in line.spans] == [
        ("name", "bold"),
        ("state", "red"),
    ]


def test_a_template_takes_as_many_values_as_it_has_places():
    with pytest.raises(ValueError, match="argument 2"):
        styled("{} {}", "one")


def test_a_document_of_json_stays_the_same_on_a_terminal(capsys):
    echo(json.dumps({"name": HOSTILE}, ensure_ascii=False))
    out = capsys.readouterr().out
    assert is_plain(out)
    assert json.loads(out) == {"name": list(HOSTILE)}


def test_an_edges_answers_are_no_commands_of_headquarters_terminal(capsys):
    bad = " ".join(HOSTILE)
    source = SourceStatus(source=bad, state=bad, reason=bad, warnings=[bad])
    answer = Answer(part="edge", running=True, version=bad, ready=False, reason=bad, address=bad, sources=[source])
    content = requests.Content(exit_code=0, data=json.loads(requests.msgspec.json.encode(answer)))
    requests.show("status", content, as_json=False)
    rows = [{"check": bad, "level": "wrong", "text": bad, "fix": bad}]
    requests.show("doctor", requests.Content(exit_code=3, data=rows), as_json=False)
    requests.show("snapshot", requests.Content(exit_code=0, data={"lines": [bad]}), as_json=False)
    for kind, data in (("doctor", rows), ("snapshot", {"lines": [bad]})):
        requests.show(kind, requests.Content(exit_code=0, data=data), as_json=True)
    out = capsys.readouterr().out
    assert is_plain(out)
    assert r"\x1b]52;c;aGk=\x07" in out
    assert is_plain(printed(screen([answer], 200)))
    out = Terminal(file=io.StringIO(), width=400)
    findings.show([findings.Finding(bad, "warning", bad, bad)], out)
    assert is_plain(out.file.getvalue())


def _modules():
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if name not in _OWN:
                yield package, name, ast.parse(path.read_text(encoding="utf-8"))


def _wrong(package, node):
    """Return what a node prints around `Terminal`, `styled` and `echo`, or None."""
    if isinstance(node, ast.ImportFrom):
        names = {f"{node.module}.{each.name}" for each in node.names}
        return names & {"rich.console.Console", "rich.markup.escape", "rich.progress.TextColumn", "rich.print"}
    if not isinstance(node, ast.Call):
        names = {each.name for each in node.names} if isinstance(node, ast.Import) else set()
        return names & {"rich", "rich.console", "rich.markup", "rich.text"}
    called, first = ast.unparse(node.func), node.args[0] if node.args else None
    constant = isinstance(first, ast.Constant)
    if called == "styled":
        return not constant
    if called in {"Text", "Text.from_markup", "Text.assemble"} or called.endswith(("onsole.status", "Text.from_ansi")):
        return not constant and not isinstance(first, ast.Call)
    if called in {"print", "click.echo", "click.secho"}:
        # The tasks of Airflow pass on what these commands printed; the local servers print what is ours.
        return package not in {"dags", "infra"}
    return any(each.arg == "markup" for each in node.keywords)


def test_all_is_printed_through_the_functions_that_escape():
    wrong = [
        f"{name}:{node.lineno}: {ast.unparse(node)[:80]}"
        for package, name, tree in _modules()
        for node in ast.walk(tree)
        if _wrong(package, node)
    ]
    assert not wrong


@pytest.mark.parametrize(
    "line",
    [
        "styled(f'[red]{name}[/]')",
        "Text(name)",
        "click.echo(name)",
        "from rich.console import Console",
        "out.print(x, markup=True)",
    ],
)
def test_a_line_that_prints_around_them_is_found(line):
    (node,) = ast.parse(line).body
    assert _wrong("headrace", node.value if isinstance(node, ast.Expr) else node)


def test_a_line_comes_now_and_then():
    clock, lines = [0.0], []
    progress = Occasionally(lines.append, now=lambda: clock[0])
    for second in range(0, 100, 5):
        clock[0] = second
        progress.write(f"{second} s")
    assert lines == ["30 s", "60 s", "90 s"]
