"""What each kind of request does: the same as the command of that name in the region, and its data as `--json` prints them.

Requests of kind `snapshot`: what `headrace edge snapshot` does with tables, asked from headquarters.
"""

import io
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta
from rich.console import Console

from edge.answers.verify import VerifyRequests, of_policy
from edge.observability.service import EdgeService
from edge.progress.checkpoint import Checkpoint
from edge.requests.answer_queue import KnownRequests
from edge.requests.service import Handler, RequestService
from edge.snapshot import store
from edge.snapshot.store import as_dict, as_table, unquoted
from headrace.configuration.edge import EdgeFile
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.findings import is_wrong
from headrace.requests.message import Request

_Table = Annotated[str, Meta(min_length=1, max_length=500)]


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request of this kind may hold."""

    do: Literal["copy", "pause", "resume", "cancel", "status"]
    #: `schema.table`; for `copy` none means every published table, for the others every snapshot.
    tables: Annotated[list[_Table], Meta(max_length=10_000)] = []
    #: Whether consumers are first asked to forget the tables.
    replace: bool = False
    #: Columns of the terminal that shows the status.
    width: Annotated[int, Meta(ge=40, le=1000)] = 120


def snapshot(config: EdgeFile, request: Request) -> tuple[int, Any]:
    """Leave a request for the edge's snapshots, or return how far they are.

    Raises ConfigurationError for arguments that do not fit, NoSpace or NeedsOperator where the state folder cannot be used.
    """
    try:
        asked = msgspec.convert(request.arguments, Arguments)
    except msgspec.ValidationError as error:
        raise ConfigurationError(f"a request for a snapshot is not understood: {error}") from error
    tables = [unquoted(name) for name in asked.tables]
    folder = store.SnapshotStore(config.resolve(config.state.folder), config.source.name)
    if asked.do == "status":
        return 0, _status(folder, asked.width)
    if bad := [name for name in tables if "." not in name]:
        raise ConfigurationError(f"{bad[0]!r} is no table's name", hint="Name it with its schema: public.orders.")
    if asked.replace and asked.do != "copy":
        raise ConfigurationError("--replace goes with tables to copy, or --all")
    if asked.do == "copy":
        folder.request(store.Request(kind="snapshot", tables=tables, replace=asked.replace))
        reply = f"Asked for a snapshot of {', '.join(tables) or 'every published table'}. --status shows it."
    else:
        folder.request(store.Request(kind=asked.do, tables=tables))
        reply = f"Asked to {asked.do} snapshots."
    return 0, {"lines": [reply]}


def _status(folder: store.SnapshotStore, width: int) -> dict[str, Any]:
    # Requests first, as the command does it.
    waiting = [request for _, request in folder.waiting()]
    plan = folder.plan()
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(as_table(plan, waiting))
    return {"lines": [line.rstrip() for line in out.getvalue().splitlines()], "plan": as_dict(plan, waiting)}


def request_service(
    config: EdgeFile, service: EdgeService, checkpoint: Callable[[], Checkpoint]
) -> RequestService | None:
    """Return what handles the requests of an edge; None where its file allows none."""
    allowed = config.requests.allow
    if config.source.debezium is not None:
        # Rows are read by Debezium alone.
        allowed = [kind for kind in allowed if kind in {"status", "doctor"}]
    if not allowed:
        return None
    known = KnownRequests(config.resolve(config.state.folder))
    return RequestService(config.source.name, allowed, _handlers(config, service, checkpoint), known)


def _handlers(config: EdgeFile, service: EdgeService, checkpoint: Callable[[], Checkpoint]) -> dict[str, Handler]:
    def status(_request: Request) -> tuple[int, Any]:
        answer = service.status()
        answer.address = "the interconnect"
        return int(not (answer.running and answer.ready)), msgspec.to_builtins(answer)

    def doctor(_request: Request) -> tuple[int, Any]:
        # Drivers and checks are imported when they are first needed.
        from edge.doctor.examine import examine  # noqa: PLC0415

        findings = list(examine(config))
        return NeedsOperator.exit_code * is_wrong(findings), [finding._asdict() for finding in findings]

    verification = VerifyRequests(config, of_policy(config), checkpoint)
    return {
        "status": Handler(status),
        "doctor": Handler(doctor),
        "verify": Handler(verification.handle, close=verification.close, is_quiet=verification.goes_on),
        "snapshot": Handler(lambda request: snapshot(config, request), changes=True),
    }
