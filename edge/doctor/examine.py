"""All checks of an edge's file, those of its engine among them, and how they are printed."""

from collections.abc import Iterator

import msgspec
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from edge.doctor import machine
from edge.doctor.finding import Finding, run
from headrace.configuration.edge import EdgeFile
from headrace.errors import ReplicationError

_STYLES = {"ok": "green", "warning": "yellow", "wrong": "bold red"}


def examine(config: EdgeFile) -> Iterator[Finding]:
    """Yield what all checks find."""
    if config.source.postgresql is not None:
        yield from _postgres(config)
    yield from run(machine.CHECKS, config)


def _postgres(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import postgres, tables  # noqa: PLC0415 - the driver is imported for its engine only.
    from edge.postgres.engine import PostgresEngine  # noqa: PLC0415
    from edge.postgres.session import Database  # noqa: PLC0415

    names = config.source.postgresql
    assert names is not None
    try:
        checkpoint = PostgresEngine(config, names).state.read(config.source.name)
        database = Database(names, config.source.name)
    except ReplicationError as error:
        yield Finding(
            "connection", "wrong", error.message, error.hint or "Is the server running, and reachable from here?"
        )
        return
    made = checkpoint if checkpoint is not None and checkpoint.stage == "made" else None
    try:
        yield from run((*postgres.CHECKS, *tables.CHECKS), postgres.Patient(config, names, database, made))
    finally:
        database.close()


def as_json(findings: list[Finding]) -> str:
    """Return the findings as JSON."""
    return msgspec.json.format(msgspec.json.encode([finding._asdict() for finding in findings]), indent=1).decode()


def show(findings: list[Finding], console: Console) -> None:
    """Print a line a finding, what mends it below, and a verdict."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for finding in findings:
        mend = f"\n[bold]{escape(finding.mend)}[/]" if finding.mend else ""
        level = f"[{_STYLES[finding.level]}]{finding.level}[/]"
        table.add_row(level, escape(finding.check), escape(finding.said) + mend)
    console.print(table)
    wrong, warnings = (sum(finding.level == level for finding in findings) for level in ("wrong", "warning"))
    style = _STYLES["wrong" if wrong else "warning" if warnings else "ok"]
    console.print(f"[{style}]{wrong} wrong, {warnings} warnings[/], {len(findings)} looked at.")
