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
    else:
        yield from _mysql(config)
    yield from run(machine.CHECKS, config)


def _postgres(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import postgres, slots, tables  # noqa: PLC0415 - the driver is imported for its engine only.
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
        yield from run(
            (*postgres.CHECKS, *slots.CHECKS, *tables.CHECKS), postgres.Patient(config, names, database, made)
        )
    finally:
        database.close()


def _mysql(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import mysql  # noqa: PLC0415 - as above.
    from edge.engine import engine_of  # noqa: PLC0415
    from edge.mysql.session import Database  # noqa: PLC0415

    names = config.source.mariadb or config.source.mysql
    assert names is not None
    try:
        checkpoint = engine_of(config).state.read(config.source.name)
        database = Database(names, config.source.name)
    except ReplicationError as error:
        yield Finding(
            "connection", "wrong", error.message, error.hint or "Is the server running, and reachable from here?"
        )
        return
    try:
        yield from run(mysql.CHECKS, mysql.Patient(config, names, database, checkpoint))
    finally:
        database.close()


def as_json(findings: list[Finding]) -> str:
    """Return the findings as JSON."""
    return msgspec.json.format(msgspec.json.encode([finding._asdict() for finding in findings]), indent=1).decode()


def show(findings: list[Finding], console: Console) -> None:
    """Print a line a finding, what mends it below, whole so that it can be copied, and a verdict."""
    width = max(len(finding.check) for finding in findings)
    for finding in findings:
        line = Table.grid(padding=(0, 1, 0, 0))
        for column in (7, width, None):
            line.add_column(min_width=column, overflow="fold")
        line.add_row(f"[{_STYLES[finding.level]}]{finding.level}[/]", escape(finding.check), escape(finding.said))
        console.print(line)
        if finding.mend:
            console.print(f"        [bold]{escape(finding.mend)}[/]", soft_wrap=True)
    wrong, warnings = (sum(finding.level == level for finding in findings) for level in ("wrong", "warning"))
    style = _STYLES["wrong" if wrong else "warning" if warnings else "ok"]
    plural = "" if warnings == 1 else "s"
    console.print(f"[{style}]{wrong} wrong, {warnings} warning{plural}[/], {len(findings)} findings.")
