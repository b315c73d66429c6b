"""The state of a bridge's sources by what Kafka holds, whether or not a bridge runs; for `headrace status`."""

from bridge.positions.survey import survey
from headrace.configuration.bridge import BridgeFile
from headrace.status.answer import SourceStatus


def durable(file: BridgeFile) -> list[SourceStatus]:
    """Return the status of each source by its committed position."""
    return [
        SourceStatus(
            source=each["source"],
            state="not asked",
            reason=each["error"] or "",
            position=each["position"],
            committed_at=each["committed_at"],
        )
        for each in survey(file)
    ]
