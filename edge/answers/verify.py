"""Requests of kind `verify`: the source's half of a verification, computed by the edge, one verification at a time.

Each request is one step of a session (headrace/verify/contract.py), answered within its deadline, with `working` where the step
takes longer. Errors of the database are answers too, so that headquarters knows by their class who must act.

It reads the captured tables and columns that leave the region as they are. What is not captured, and what the policy keeps back
or changes, is not shown to who asks, not even as a hash. The lake has it otherwise, or not at all, so it could not be equal.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import msgspec

from edge.answers.verify_session import Verification
from edge.progress.checkpoint import Checkpoint
from edge.records.column_policy import LeftOut, Policy
from headrace.configuration.edge import EdgeFile
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.requests.message import Request
from headrace.verify import contract, engines
from headrace.verify.contract import IDLE_SECONDS, Reply
from headrace.verify.engine import Database, Reading, SourceTable

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
        asked = contract.parsed(request.arguments)
        try:
            reply = self._reply(asked, request)
        except ReplicationError as error:
            reply = Reply(state="failed", failure=contract.failure(error))
        return 0, msgspec.to_builtins(reply)

    def goes_on(self, request: Request) -> bool:
        """Whether a request goes on with a verification, whose beginning was logged."""
        return request.arguments.get("step") != 0

    def close(self) -> None:
        """End what is under way."""
        if self._current is not None:
            self._current.end()
            self._current = None

    def _reply(self, asked: contract.Arguments, request: Request) -> Reply:
        current = self._current
        mine = current if current is not None and current.session == asked.session else None
        match asked.what:
            case contract.Close():
                if mine is not None:
                    self.close()
                return Reply(state="done")
            case contract.Open() if mine is None:
                if current is not None and not current.is_over:
                    raise _busy(current, self._source.name)
                mine = self._current = Verification(
                    asked.session,
                    request.caller,
                    engines.engine_of(self._source),
                    self._connect,
                    self._leaving,
                    checkpoint=self._checkpoint,
                )
        if mine is None or (mine.is_over and not mine.has_answer(asked.step)):
            raise NotConnected(
                f"source {self._source.name}: the edge has no such verification any more: it was restarted, its database ended "
                f"the snapshot, or nothing was asked for {IDLE_SECONDS} s",
                hint="Its snapshot is gone. Verify again.",
            )
        if isinstance(asked.what, contract.Keep):
            mine.keep()
            return Reply(state="done")
        return mine.ask(asked.step, asked.what, min(_WAIT_SECONDS, request.seconds_left() * _SHARE))

    def _connect(self, placed: bool) -> AbstractContextManager[Database]:
        return engines.connect(self._source.name, self._source, placed=placed, reading=self._reading)


def _busy(current: Verification, source: str) -> Retryable:
    return Retryable(
        f"source {source}: the edge is at another verification, asked by {current.caller}",
        hint=f"Verify again when it is done. One that nobody goes on with ends by itself after {IDLE_SECONDS} s.",
    )


def of_policy(config: EdgeFile) -> Callable[[list[SourceTable]], list[SourceTable]]:
    """Return what takes out of tables what does not leave; raises ConfigurationError for a policy without its key."""

    def leaving(tables: list[SourceTable]) -> list[SourceTable]:
        policy = Policy.of(config)
        return [_leaving(policy, table) for table in tables if _admitted(policy, table)]

    return leaving


def _admitted(policy: Policy, table: SourceTable) -> bool:
    # Rows of a partition may leave under the name of the table that it is a partition of.
    return policy.admits_name(f"{table.schema}.{table.name}", sorted(table.partition_of))


def _leaving(policy: Policy, table: SourceTable) -> SourceTable:
    if not table.captured:
        return replace(table, columns={}, key=(), treated={})
    names = list(table.columns)
    try:
        found = policy.treatments(table.schema, table.name, names, table.key)
    except LeftOut:
        return replace(table, columns={}, key=(), treated={}, captured=False)
    treated = {name: each.action for name, each in zip(names, found, strict=True) if each is not None}
    treated |= {
        name: f"as in {above}"
        for above in sorted(table.partition_of)
        for name in names
        if policy.treats_name(above, [name])
    }
    columns = {name: kind for name, kind in table.columns.items() if name not in treated}
    return replace(table, columns=columns, treated=table.treated | treated)
