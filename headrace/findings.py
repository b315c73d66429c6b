"""What a doctor's check finds, how checks are run, none of which ends the others, and how findings are printed.

Used by `headrace edge doctor` and `headrace bridge doctor`, which change nothing.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

import msgspec
from rich.table import Table

from headrace.errors import ReplicationError
from headrace.terminal import Terminal, in_style, styled

T = TypeVar("T")

Level = Literal["ok", "warning", "wrong"]


class Finding(NamedTuple):
    """One line of the doctor's."""

    #: What was looked at: a setting's own name where it is one.
    check: str
    level: Level
    #: A sentence.
    text: str
    #: What to do or to run; SQL where it is SQL. Empty when nothing is to be done.
    fix: str = ""


_STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red"}

Check = Callable[[T], Iterable[Finding]]


def run(checks: Iterable[Check[T]], subject: T) -> Iterator[Finding]:
    """Yield what the checks find; one that fails is a finding too."""
    for check in checks:
        try:
            yield from check(subject)
        except ReplicationError as error:
            yield Finding(check.__name__.replace("_", " "), "wrong", error.message, error.hint)


def is_wrong(findings: Iterable[Finding]) -> bool:
    """Return whether something is wrong; warnings are not."""
    return any(finding.level == "wrong" for finding in findings)


def as_json(findings: list[Finding]) -> str:
    """Return the findings as JSON."""
    return msgspec.json.format(msgspec.json.encode([finding._asdict() for finding in findings]), indent=1).decode()


def show(findings: list[Finding], console: Terminal) -> None:
    """Print a line a finding, what fixes it below, whole so that it can be copied, and a verdict."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        line = Table.grid(padding=(0, 1, 0, 0))
        for column in (7, width, None):
            line.add_column(min_width=column, overflow="fold")
        line.add_row(in_style(finding.level, _STYLES[finding.level]), finding.check, finding.text)
        console.print(line)
        if finding.fix:
            console.print(styled("        [bold]{}[/]", finding.fix), soft_wrap=True)
    wrong, warnings = (sum(finding.level == level for finding in findings) for level in ("wrong", "warning"))
    style = _STYLES["wrong" if wrong else "warning" if warnings else "ok"]
    plural = "" if warnings == 1 else "s"
    verdict = in_style(f"{wrong} wrong, {warnings} warning{plural}", style)
    console.print(styled("{}, {} findings.", verdict, len(findings)))
