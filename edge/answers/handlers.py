"""What each kind of request does: the same as the command of that name in the region, and its data as `--json` prints them."""

from collections.abc import Callable
from typing import Any

import msgspec

from edge.answers.snapshots import snapshot
from edge.answers.verify import VerifyRequests, of_policy
from edge.observability.service import EdgeService
from edge.progress.checkpoint import Checkpoint
from edge.requests.known import KnownRequests
from edge.requests.service import Handler, RequestService
from headrace.configuration.edge import EdgeFile
from headrace.errors import NeedsOperator
from headrace.findings import is_wrong
from headrace.requests.message import Request


def request_service(
    config: EdgeFile, service: EdgeService, checkpoint: Callable[[], Checkpoint]
) -> RequestService | None:
    """Return what handles the requests of an edge; None where its file allows none."""
    allowed = config.requests.allow
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
