"""Which command to run next for a source, a bridge or a table: what an operator would look up in docs/trouble.md.

Pure. Nothing is run from the pages: a command is shown to be copied.
"""

import shlex
from typing import NamedTuple

from headrace.console.lake import LakeView, TablePublished
from headrace.console.rows import SourceRow


class Step(NamedTuple):
    """What to do, and the command for it."""

    why: str
    command: str
    #: Where it is to be run: headquarters, or the source's region.
    where: str = "At headquarters"


class Files(NamedTuple):
    """The files that the console was started with, as commands name them."""

    bridge: str
    lake: str | None


def of_source(row: SourceRow, lake: LakeView, files: Files) -> list[Step]:
    """Return what to do for a source, the most pressing first; empty when all is well."""
    bridge, source = shlex.quote(files.bridge), shlex.quote(row.source)
    states = {hop.name: hop for hop in row.hops}
    steps = []
    if states["bridge"].state == "bad":
        steps.append(Step(_sentence(states["bridge"].detail), f"headrace bridge doctor --config {bridge}"))
    elif states["Kafka"].state == "bad":
        steps.append(Step(_sentence(states["Kafka"].detail), f"headrace bridge doctor --config {bridge}"))
    elif states["bridge"].word == "starting":
        steps.append(Step("The bridge is taking the source over.", f"headrace bridge positions --config {bridge}"))
    edge = states["edge"]
    if edge.word == "silent":
        steps += [
            Step("The edge is not heard: is its process running, and can it reach headquarters?",
                 "headrace status --config edge.toml", "In its region"),
            Step("Look at everything that the edge needs.", "headrace edge doctor --config edge.toml", "In its region"),
        ]  # fmt: skip
    elif edge.state == "bad" and edge.word in {"needs an operator", "stopped"}:
        steps.append(Step(_sentence(edge.detail), "headrace edge doctor --config edge.toml", "In its region"))
    elif "bad" in {states[name].state for name in ("database", "edge", "interconnect")} or edge.state == "warn":
        wrong = next(hop for hop in row.hops[:3] if hop.state in {"bad", "warn"})
        # Its words name the command that copies the table.
        ask = "snapshot --status" if "edge snapshot" in wrong.detail or "the copy of" in wrong.detail else "doctor"
        steps.append(Step(_sentence(wrong.detail), f"headrace ask {source} {ask} --config {bridge}"))
    elif states["database"].state == "warn":
        steps.append(Step(_sentence(states["database"].detail), f"headrace ask {source} status --config {bridge}"))
    return steps + (_of_lake(row, lake, files.lake) if files.lake is not None else [])


def of_table(table: TablePublished, files: Files) -> Step | None:
    """Return what to do for a table that is not published whole; None when it is."""
    if files.lake is None:
        return None
    lake = shlex.quote(files.lake)
    if table.state == "stopped":
        return Step(_sentence(table.reason), _past_stop(table, lake))
    if table.state in {"behind", "not made"}:
        return Step("The next load brings it up.", f"headrace lake load {table.stream} --config {lake}")
    return None


def _past_stop(table: TablePublished, lake: str) -> str:
    """Return the command to run next for a table that stopped: its reason names what is to be done, and what comes first."""
    name = shlex.quote(table.table)
    if "on_unsupported" not in table.reason:
        if "edge snapshot" in table.reason and table.positions:
            # Rebuilt from a copy that has to come first.
            source = shlex.quote(min(table.positions))
            return f"headrace ask {source} snapshot --replace {name} --config {lake}"
        if "lake replay" in table.reason:
            return f"headrace lake replay {table.stream} --config {lake}"
    # What is to be changed is at the source, or in a file.
    return f"headrace lake load {table.stream} --config {lake}"


def _of_lake(row: SourceRow, lake: LakeView, file: str) -> list[Step]:
    path = shlex.quote(file)
    own = [table for table in lake.tables if table.stream == row.stream and row.source in table.positions]
    stopped = (of_table(table, Files("", file)) for table in own if table.state == "stopped")
    steps = [step for step in stopped if step is not None]
    if row.stream and any(hop.state == "warn" and hop.word == "behind" for hop in row.hops[5:]):
        steps.append(Step("The lake is behind: load the stream.", f"headrace lake load {row.stream} --config {path}"))
    verified = {table for stream, source, table in lake.verdicts if (stream, source) == (row.stream, row.source)}
    differ = [
        table
        for (stream, source, table), found in lake.verdicts.items()
        if (stream, source) == (row.stream, row.source) and found.verdict == "not equal"
    ]
    verify = f"headrace verify {row.stream} --source {shlex.quote(row.source)} --config {path}"
    if differ:
        steps.append(Step(f"Verification found a difference in {', '.join(sorted(differ)[:3])}.", verify))
    elif own and lake.verdicts and not verified:
        steps.append(Step("No verification of this source is recorded.", verify))
    return steps


def _sentence(text: str) -> str:
    text = text.strip().rstrip(".")
    return f"{text[:1].upper()}{text[1:]}." if text else "Look at what is wrong."
