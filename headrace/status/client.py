"""The status of a part: from its endpoint if one answers, else what is durable, which the part's own code looks up.

The core imports no part: it finds what reads an edge's checkpoint, or what Kafka holds for a bridge, by the entry points of
`headrace.status`.
"""

import http.client
import tomllib
from collections import Counter
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from headrace import __version__
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError
from headrace.formats import UNREADABLE
from headrace.status.answer import Answer, SourceStatus, refused_inputs

_TIMEOUT = 5.0
#: The state of a source that another bridge serves.
_ELSEWHERE = "elsewhere"
#: The state of a source that the bridge itself serves.
_SERVING = "serving"

#: Returns what is durable for the sources of a file.
Durable = Callable[[EdgeFile | BridgeFile], list[SourceStatus]]


def fetch(path: Path, at: tuple[str, ...] = ()) -> Answer:
    """Return what the part of a file answers, or what is durable where nobody does.

    Args:
        path: an edge's or a bridge's file.
        at: `host:port` of the endpoints of all who serve the file's sources; that of the file when none is given.

    Raises:
        ConfigurationError: it is neither.
        NotConnected, NeedsOperator: nobody answers, and what is durable cannot be read.
    """
    file = _load_file(path)
    part = "edge" if isinstance(file, EdgeFile) else "bridge"
    listens = at or tuple(filter(None, [file.metrics.listen]))
    answers, silences = [], []
    for listen in listens:
        answer, why = answer_of(listen)
        if answer is None:
            silences.append(why)
        else:
            answers.append(answer)
    if answers:
        return _merge(answers, silences)
    why = "; ".join(silences) or "[metrics] listen is not in the file, so the status of what runs cannot be read"
    return Answer(part=part, running=False, version=__version__, reason=why, sources=_find_status_reader(part)(file))


def _merge(answers: list[Answer], silences: list[str]) -> Answer:
    """Return one answer, in which each source is shown as the bridge that serves it sees it."""
    sources: dict[str, SourceStatus] = {}
    for answer in answers:
        for source in answer.sources:
            former = sources.get(source.source)
            # A bridge that the group dropped shows what it had as waiting, until the group reports who has it.
            if former is None or rank(source) > rank(former):
                sources[source.source] = source
    merged = answers[0]
    merged.address = ", ".join(answer.address for answer in answers)
    merged.ready = not silences and all(answer.ready for answer in answers)
    merged.reason = "; ".join([*(answer.reason for answer in answers), *silences])
    merged.sources = list(sources.values())
    refused: dict[str, Counter[str]] = {}
    for each in (each for answer in answers for each in answer.refused):
        refused.setdefault(each.door, Counter())[each.sender] += each.count
    merged.refused = refused_inputs(refused)
    merged.deliveries = [delivery for answer in answers for delivery in answer.deliveries]
    return merged


def rank(source: SourceStatus) -> int:
    """Return how much a bridge's view of a source counts: most where it serves the source."""
    return {_SERVING: 2, _ELSEWHERE: 0}.get(source.state, 1)


def _load_file(path: Path) -> EdgeFile | BridgeFile:
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError):
        # The loader words it better.
        tables = {"source": {}}
    if "source" in tables:
        return load(path, EdgeFile)
    if "streams" in tables and "interconnect" in tables:
        return load(path, BridgeFile)
    raise ConfigurationError(
        f"{path} is neither an edge's nor a bridge's file",
        hint="Name one with --config: it has [source] or [streams.NAME].",
    )


def answer_of(listen: str, timeout: float = _TIMEOUT) -> tuple[Answer | None, str]:
    """Return what answers at `host:port` within `timeout` seconds, or None and why there is no answer."""
    host, _, port = listen.rpartition(":")
    host = "127.0.0.1" if host in {"", "0.0.0.0"} else host
    if port == "0":
        return None, "[metrics] listen names no port: give --at with the one that the log names"
    connection = http.client.HTTPConnection(host, int(port), timeout=timeout)
    try:
        connection.request("GET", "/status")
        answer = msgspec.json.decode(connection.getresponse().read(), type=Answer)
    except OSError as error:
        return None, f"nobody answers at {host}:{port}: {error.strerror or error}"
    except (http.client.HTTPException, *UNREADABLE):
        return None, f"what answers at {host}:{port} is no part of Headrace"
    finally:
        connection.close()
    answer.address = f"{host}:{port}"
    return answer, ""


def _find_status_reader(part: str) -> Durable:
    (point,) = entry_points(group="headrace.status", name=part)
    read_status: Durable = point.load()
    return read_status
