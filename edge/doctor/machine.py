"""What of this machine and of the interconnect an edge needs, with every engine."""

import os
import shutil
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

from edge import compiled
from edge.delivery.link import SourceConnection
from edge.delivery.outbox import Outbox
from edge.engine_registry import engine_of
from edge.observability.figures import Figures
from edge.progress.spool import spool_limit
from edge.records.column_policy import LeftOut, Policy, PolicyTable, unused_words
from headrace import process
from headrace.certificates import files
from headrace.configuration.edge import EdgeFile, Mysql, Postgresql
from headrace.findings import Check, Finding
from headrace.position import Position
from headrace.status.command import fetch

#: Addresses of this machine; PostgreSQL's may be a socket's folder.
_LOCAL = ("127.", "localhost", "::1", "/")
#: Space that the state folder needs in addition to the spool, in bytes.
_SPACE = 64 << 20
#: Files and connections that an edge has open at most, about.
_DESCRIPTORS = 256
#: How long the far side may take to let this source attach and to give it credit, in seconds.
_TIMEOUT = 5.0
#: So many tables are named; of more there is a count.
_NAMED = 10
_NO_CREDIT = (
    "Does a bridge run that receives from this source's address? Its log shows whether it waits for Kafka or for an operator. "
    "Logs of routers between show whether their policy permits the address."
)


def state_folder(config: EdgeFile) -> Iterator[Finding]:
    """Look at the state folder: whether it can be written, and has space for the spool."""
    folder = config.resolve(config.state.folder)
    there = _nearest(folder)
    if not os.access(there, os.W_OK | os.X_OK):
        yield Finding("state folder", "wrong", f"{there} cannot be written", "Let the edge's user write there.")
        return
    free, spool = shutil.disk_usage(there).free, config.spool.megabytes << 20
    summary = f"{folder}, {_megabytes(free)} free"
    if config.spool.megabytes > (largest := spool_limit(there)):
        fix = f"Set [spool] megabytes to at most {largest}, or give the state folder a larger volume."
        yield Finding("state folder", "wrong", f"{folder}: the spool's limit is above the size of the volume", fix)
    elif free < _SPACE:
        yield Finding("state folder", "wrong", summary, "Free some space: the checkpoint could not be written.")
    elif free < spool + _SPACE and not (folder / "spool.sqlite").exists():
        fix = f"Free some space, or set [spool] megabytes to at most {max(0, free - _SPACE) >> 20}."
        yield Finding("state folder", "warning", f"{summary}, the spool may take {_megabytes(spool)}", fix)
    else:
        yield Finding("state folder", "ok", summary)


def row_decoder(_config: EdgeFile) -> Iterator[Finding]:
    """Report which code decodes rows: C, or Python where that was not compiled or is switched off."""
    in_c = compiled.module is not None
    summary = "compiled, for tables of ordinary columns in JSON" if in_c else "Python alone, which takes more CPU"
    yield Finding("row decoder", "ok", summary)


def checkpoint(config: EdgeFile) -> Iterator[Finding]:
    """Look at the checkpoint, and whether an edge runs."""
    state = engine_of(config).state
    existing = state.read(config.source.name)
    if existing is None:
        yield Finding("checkpoint", "ok", "none yet: 'headrace edge init' makes it")
    elif existing.stage != "made":
        yield Finding("checkpoint", "warning", "'init' did not finish", "headrace edge init --config FILE")
    else:
        running = "an edge runs" if state.in_use() else "no edge runs"
        yield Finding("checkpoint", "ok", f"acknowledged {existing.acknowledged}; {running}")


def certificates(config: EdgeFile) -> Iterator[Finding]:
    """Look at the certificates for the interconnect, where there are any."""
    if config.interconnect.certificate is None and config.interconnect.authority is None:
        return
    warnings = files.examine(config.interconnect)
    yield from (Finding("certificates", "warning", warning, "Renew it: see docs/security.md.") for warning in warnings)
    if not warnings:
        yield Finding("certificates", "ok", "readable, and valid for long enough")


def interconnect(config: EdgeFile) -> Iterator[Finding]:
    """Attach to the source's address at every interconnect; of an edge that runs, and would lose its link, read the status."""
    if engine_of(config).state.in_use():
        yield _of_running(config)
        return
    for url in config.interconnect.urls:
        yield _attach(config, url)


def _of_running(config: EdgeFile) -> Finding:
    """Return what the edge that runs reports of its link."""
    answer = fetch(Path(config.path)) if config.metrics.listen is not None else None
    source = answer.sources[0] if answer is not None and answer.running else None
    if source is None:
        summary = "not tried, because the edge that runs has the link; with [metrics] listen its status could be read"
        return Finding("interconnect", "ok", summary)
    summary = f"the edge that runs is {source.state!r}{source.reason and f': {source.reason}'}"
    if source.state in {"interconnect down", "not acknowledged"}:
        return Finding("interconnect", "warning", summary, _NO_CREDIT)
    return Finding("interconnect", "ok", summary)


def _attach(config: EdgeFile, url: str) -> Finding:
    outbox = Outbox(limit_bytes=1, tail=Position.start(0), confirmed=0)
    connection = SourceConnection(config.interconnect, url, config.source.name, outbox, Figures())
    timer = threading.Timer(_TIMEOUT, connection.close)
    connection.on_credit = connection.close
    timer.start()
    try:
        problem = connection.run(threading.Event())
    finally:
        timer.cancel()
    if problem is not None:
        return Finding("interconnect", "wrong", problem.message, problem.hint or "Is it reachable from here?")
    if connection.worked:
        return Finding("interconnect", "ok", f"{url} takes batches of {config.source.name}")
    if not connection.attached:
        summary = f"{url} did not answer within {_TIMEOUT:.0f} s"
        return Finding(
            "interconnect", "wrong", summary, "Check the address, and that firewalls permit connections out."
        )
    summary = f"{url} lets {config.source.name} attach, and gave no credit within {_TIMEOUT:.0f} s"
    return Finding("interconnect", "warning", summary, _NO_CREDIT)


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that exists."""
    return next(each for each in (folder, *folder.parents) if each.exists())


def _megabytes(number: int) -> str:
    return f"{number / (1 << 20):,.0f} MB"


def open_files(_config: EdgeFile) -> Iterator[Finding]:
    """Look at the limit of open files."""
    yield from process.examine_open_files(_DESCRIPTORS)


CHECKS: tuple[Check[EdgeFile], ...] = (state_folder, open_files, row_decoder, checkpoint, certificates, interconnect)


def policy_findings(policy: Policy, tables: Sequence[PolicyTable]) -> Iterator[Finding]:
    """Yield the rules of a policy that match none of these tables, and the tables that it leaves out because of their keys."""
    problems = []
    for table in tables:
        try:
            if policy.admits(table.schema, table.name):
                policy.treatments(*table)
        except LeftOut as problem:
            problems.append(problem)
    if problems:
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        summary = "; ".join(problem.message for problem in problems[:_NAMED]) + more
        yield Finding("policy", "wrong", summary, problems[0].hint)
    unused = policy.unused(tables) if tables else []
    if unused:
        fix = "Correct or remove them in [policy] of the edge's file. PostgreSQL distinguishes names by case."
        yield Finding("policy", "warning", unused_words(unused), fix)
    if not problems and not unused:
        yield Finding("policy", "ok", "every rule matches something, and no table is left out because of its key")


def tls(names: Postgresql | Mysql, what: str, *, on: bool) -> Finding:
    """Return whether the connection is encrypted; `what` crosses the network where it is not."""
    if on:
        return Finding("TLS", "ok", f"on, sslmode = {names.sslmode}")
    if names.host.startswith(_LOCAL):
        return Finding("TLS", "ok", "off, on this machine")
    return Finding("TLS", "warning", f"off: {what} cross the network in the clear", "sslmode = 'verify-full'")
