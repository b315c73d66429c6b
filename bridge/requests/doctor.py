"""What `headrace bridge doctor` looks at of requests to edges: the two topics."""

from collections.abc import Iterator
from typing import Any

from bridge.kafka.topics import Wanted, check
from headrace.configuration.bridge import BridgeFile
from headrace.findings import Finding
from headrace.requests.message import LARGEST_REQUEST


def requests(file: BridgeFile, admin: Any) -> Iterator[Finding]:
    """Yield what is found of the topics; raise what keeps them from being used."""
    if file.requests is None:
        problem = (
            "this bridge carries no requests to edges: 'headrace ask', and 'headrace verify' in regions, need them"
        )
        yield Finding("requests", "ok", problem)
        return
    names = file.requests.topics(file.kafka.prefix)
    limits = check(admin, dict.fromkeys(names, Wanted(1)))
    yield Finding("requests", "ok", f"{names.requests} and {names.answers} are there")
    for topic, largest in limits.items():
        if largest < LARGEST_REQUEST:
            problem = f"{topic}: records up to {largest} bytes: a request may have {LARGEST_REQUEST}"
            yield Finding("requests", "warning", problem, f"Raise max.message.bytes of {topic}.")
