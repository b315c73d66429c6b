"""Requests of kind `verify`: the source's half of a verification, computed by the edge, one verification at a time.

Each request is one step of a session (headrace/verify/contract.py), answered within its deadline, with `working` where the step
takes longer. Errors of the database are answers too, so that headquarters knows by their class who must act.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from edge.requests.verification import Verification
from headrace.configuration.edge import EdgeFile
from headrace.errors import NotConnected, ReplicationError, Retryable
from headrace.requests.message import Request
from headrace.verify import contract, engines, transfer
from headrace.verify.contract import IDLE_SECONDS, Reply
from headrace.verify.engine import Database, Reading, SourceTable

#: An answer waits so long for its step, in seconds, and this share of the time that is left.
_WAIT_SECONDS, _SHARE = 20.0, 0.5


class VerifyRequests:
    """Handles the requests of one edge; called by the thread of their kind."""

    def __init__(self, config: EdgeFile, leaving: Callable[[list[SourceTable]], list[SourceTable]]) -> None:
        """Read what `leaving` leaves of the tables."""
        self._leaving = leaving
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
            reply = Reply(state="failed", failure=transfer.failure(error))
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
                    asked.session, request.caller, engines.engine_of(self._source), self._connect, self._leaving
                )
        if mine is None or (mine.is_over and not mine.has_answer(asked.step)):
            raise NotConnected(
                f"source {self._source.name}: the edge has no such verification any more: it was restarted, or nothing was "
                f"asked for {IDLE_SECONDS} s",
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
