"""What a running edge answers: at its endpoint, and to each kind of request, which does the same as the command of that name.

Data are as `--json` prints them. Requests of kind `snapshot`: what `headrace edge snapshot` does with tables, asked from
headquarters.

Requests of kind `verify`: the source's half of a verification, computed by the edge, one verification at a time. Each request
is one step of a session (headrace/verify/contract.py), answered within its deadline, with `working` where the step takes
longer. Errors of the database are answers too, so that headquarters knows by their class who must act.

It reads the captured tables and columns that leave the region as they are. What is not captured, and what the policy keeps back
or changes, is not shown to who asks, not even as a hash. The lake has it otherwise, or not at all, so it could not be equal.
"""

import io
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Meta

from edge.answers.verify_session import Verification
from edge.observability.figures import Figures
from edge.progress.checkpoint import Checkpoint
from edge.records.column_policy import LeftOut, Policy
from edge.requests.service import Handler, KnownRequests, RequestService
from edge.snapshot import store
from edge.snapshot.store import as_dict, as_table, unquoted
from headrace import __version__, doors
from headrace.configuration.edge import EdgeFile
from headrace.errors import ConfigurationError, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.findings import is_wrong
from headrace.formats import UNREADABLE, explain
from headrace.process import PROCESS
from headrace.requests import Request
from headrace.status.answer import Answer, Health, SourceStatus, refused_inputs, snapshot_of
from headrace.terminal import Terminal
from headrace.verify import contract, sources
from headrace.verify.comparison import Database, Reading, SourceTable
from headrace.verify.contract import IDLE_SECONDS, Reply

if TYPE_CHECKING:
    from headrace.metrics.collector import Together


PREFIX = "headrace_edge"
#: A capturing thread that did nothing for so long, in seconds, hangs: every call that it makes ends sooner.
_HUNG_SECONDS = 180.0


class EdgeService:
    """Implements `headrace.metrics.endpoint.Served` over an edge's figures."""

    def __init__(self, source: str, figures: Figures, position: Callable[[], str]) -> None:
        self._source = source
        self._figures = figures
        self._position = position

    @cached_property
    def collector(self) -> "Together":
        """What Prometheus reads; its library is imported only for that."""
        from headrace.metrics.collector import FiguresCollector, RefusedCollector, Together, process_collector

        return Together(
            process_collector(),
            FiguresCollector(PREFIX, Figures, lambda: {self._source: self._figures}),
            RefusedCollector(PREFIX, doors.refused),
        )

    def live(self) -> Health:
        """Return whether the capturing thread still runs."""
        silent = time.monotonic() - self._figures.turned_at
        if silent > _HUNG_SECONDS:
            return Health(well=False, reason=f"the capturing thread has done nothing for {silent:.0f} s")
        return Health(well=True, reason=f"the capturing thread worked {silent:.1f} s ago")

    def ready(self) -> Health:
        """Return whether changes are captured and acknowledged."""
        figures = self._figures
        state, reason = figures.state, figures.reason
        return Health(well=state == "capturing", reason=f"{state}: {reason}" if reason else state)

    def status(self) -> Answer:
        """Return the source's status."""
        figures, ready = self._figures, self.ready()
        return Answer(
            part="edge",
            running=True,
            version=__version__,
            ready=ready.well,
            reason=ready.reason,
            cpu_cores=PROCESS.cpu_cores,
            memory_bytes=PROCESS.memory_bytes,
            sources=[
                SourceStatus(
                    source=self._source,
                    state=figures.state,
                    reason=figures.reason,
                    position=self._position(),
                    records_per_second=round(figures.rate.read(), 1),
                    captured_lag_seconds=figures.captured_lag,
                    accepted_lag_seconds=figures.accepted_lag,
                    retained_wal_bytes=figures.retained_wal_bytes,
                    safe_wal_bytes=figures.safe_wal_bytes,
                    spool_bytes=figures.spool_bytes,
                    spool_limit_bytes=figures.spool_limit_bytes,
                    unacknowledged_batches=figures.unacknowledged_batches,
                    edge_cpu_cores=PROCESS.cpu_cores,
                    edge_memory_bytes=PROCESS.memory_bytes,
                    wan_bytes_per_second=round(figures.sent_rate.read(), 1),
                    in_flight_ratio=figures.in_flight,
                    edge_version=__version__,
                    snapshot=snapshot_of(figures.snapshot()),
                    warnings=figures.warnings,
                )
            ],
            refused=refused_inputs(doors.refused()),
        )


#: An answer waits so long for its step, in seconds, and this share of the time that is left.
_WAIT_SECONDS, _SHARE = 20.0, 0.5


class VerifyRequests:
    """Handles the requests of one edge; called by the thread of their kind."""

    def __init__(
        self,
        config: EdgeFile,
        leaving: Callable[[list[SourceTable]], list[SourceTable]],
        checkpoint: Callable[[], Checkpoint],
    ) -> None:
        """Read what `leaving` leaves of the tables; `checkpoint` returns the edge's own."""
        self._leaving, self._checkpoint = leaving, checkpoint
        self._source = config.source
        self._reading = Reading(
            settings="the edge's file",
            statement_seconds=config.requests.verify_statement_seconds,
            # Of the server, should this process hang: what is asked in time is never ended by it.
            idle_seconds=2 * IDLE_SECONDS,
        )
        self._current: Verification | None = None

    def handle(self, request: Request) -> tuple[int, Any]:
        """Return the answer of a step; raise NeedsOperator or ConfigurationError for what is none of this release."""
        arguments = contract.parse_arguments(request.arguments)
        try:
            reply = self._reply(arguments, request)
        except ReplicationError as error:
            reply = Reply(state="failed", failure=contract.failure(error))
        return 0, msgspec.to_builtins(reply)

    def is_continued(self, request: Request) -> bool:
        """Whether a request goes on with a verification, whose beginning was logged."""
        return request.arguments.get("step") != 0

    def close(self) -> None:
        """End what is under way."""
        if self._current is not None:
            self._current.end()
            self._current = None

    def _reply(self, arguments: contract.Arguments, request: Request) -> Reply:
        current = self._current
        mine = current if current is not None and current.session == arguments.session else None
        match arguments.what:
            case contract.Close():
                if mine is not None:
                    self.close()
                return Reply(state="done")
            case contract.Open() if mine is None:
                if current is not None and not current.is_over:
                    raise _busy(current, self._source.name)
                mine = self._current = Verification(
                    arguments.session,
                    request.caller,
                    sources.engine_of(self._source),
                    self._connect,
                    self._leaving,
                    checkpoint=self._checkpoint,
                )
        if mine is None or (mine.is_over and not mine.has_answer(arguments.step)):
            raise NotConnected(
                f"source {self._source.name}: the edge has no such verification any more: it was restarted, its database ended "
                f"the snapshot, or nothing was asked for {IDLE_SECONDS} s",
                hint="Its snapshot is gone. Verify again.",
            )
        if isinstance(arguments.what, contract.Keep):
            mine.keep()
            return Reply(state="done")
        return mine.ask(arguments.step, arguments.what, min(_WAIT_SECONDS, request.seconds_left() * _SHARE))

    def _connect(self, placed: bool) -> AbstractContextManager[Database]:
        return sources.connect(self._source.name, self._source, placed=placed, reading=self._reading)


def _busy(current: Verification, source: str) -> Retryable:
    return Retryable(
        f"source {source}: the edge is at another verification, asked by {current.caller}",
        hint=f"Verify again when it is done. One that nobody goes on with ends by itself after {IDLE_SECONDS} s.",
    )


def policy_filter(config: EdgeFile) -> Callable[[list[SourceTable]], list[SourceTable]]:
    """Return what takes out of tables what does not leave; raises ConfigurationError for a policy without its key."""

    def leaving(tables: list[SourceTable]) -> list[SourceTable]:
        policy = Policy.of(config)
        return [_apply_policy(policy, table) for table in tables if _is_admitted(policy, table)]

    return leaving


def _is_admitted(policy: Policy, table: SourceTable) -> bool:
    # Rows of a partition may leave under the name of the table that it is a partition of.
    return policy.admits_name(f"{table.schema}.{table.name}", sorted(table.partition_of))


def _apply_policy(policy: Policy, table: SourceTable) -> SourceTable:
    if not table.captured:
        return replace(table, columns={}, key=(), treated={})
    names = list(table.columns)
    try:
        treatments = policy.treatments(table.schema, table.name, names, table.key)
    except LeftOut:
        return replace(table, columns={}, key=(), treated={}, captured=False)
    treated = {name: each.action for name, each in zip(names, treatments, strict=True) if each is not None}
    treated |= {
        name: f"as in {above}"
        for above in sorted(table.partition_of)
        for name in names
        if policy.treats_name(above, [name])
    }
    columns = {name: kind for name, kind in table.columns.items() if name not in treated}
    return replace(table, columns=columns, treated=table.treated | treated)


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
        arguments = msgspec.convert(request.arguments, Arguments)
    except UNREADABLE as error:
        raise ConfigurationError(f"a request for a snapshot is not understood: {explain(error)}") from error
    tables = [unquoted(name) for name in arguments.tables]
    folder = store.SnapshotStore(config.resolve(config.state.folder), config.source.name)
    if arguments.do == "status":
        return 0, _status(folder, arguments.width)
    if bad := [name for name in tables if "." not in name]:
        raise ConfigurationError(f"{bad[0]!r} is no table's name", hint="Name it with its schema: public.orders.")
    if arguments.replace and arguments.do != "copy":
        raise ConfigurationError("--replace goes with tables to copy, or --all")
    if arguments.do == "copy":
        folder.request(store.Request(kind="snapshot", tables=tables, replace=arguments.replace))
        reply = f"Asked for a snapshot of {', '.join(tables) or 'every published table'}. --status shows it."
    else:
        folder.request(store.Request(kind=arguments.do, tables=tables))
        reply = f"Asked to {arguments.do} snapshots."
    return 0, {"lines": [reply]}


def _status(folder: store.SnapshotStore, width: int) -> dict[str, Any]:
    # Requests first, as the command does it.
    waiting = [request for _, request in folder.waiting()]
    plan = folder.plan()
    out = io.StringIO()
    Terminal(file=out, width=width, color_system=None).print(as_table(plan, waiting))
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
    known_requests = KnownRequests(config.resolve(config.state.folder))
    return RequestService(config.source.name, allowed, _handlers(config, service, checkpoint), known_requests)


def _handlers(config: EdgeFile, service: EdgeService, checkpoint: Callable[[], Checkpoint]) -> dict[str, Handler]:
    def status(_request: Request) -> tuple[int, Any]:
        answer = service.status()
        answer.address = "the interconnect"
        return int(not (answer.running and answer.ready)), msgspec.to_builtins(answer)

    def doctor(_request: Request) -> tuple[int, Any]:
        # Drivers and checks are imported when they are first needed.
        from edge.doctor.examine import examine

        findings = list(examine(config))
        return NeedsOperator.exit_code * is_wrong(findings), [finding._asdict() for finding in findings]

    verification = VerifyRequests(config, policy_filter(config), checkpoint)
    return {
        "status": Handler(status),
        "doctor": Handler(doctor),
        "verify": Handler(verification.handle, close=verification.close, is_quiet=verification.is_continued),
        "snapshot": Handler(lambda request: snapshot(config, request), changes=True),
    }
