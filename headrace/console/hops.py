"""The seven hops of a source from its database to silver, each with a state, a figure and a sentence that explains it.

Pure. States are `ok`, `warn`, `bad`, `idle` (nothing to do here) and `unknown`. Called by sources.py.
"""

from typing import NamedTuple

from headrace.console.bridges import SourceSeen
from headrace.console.lake_view import LakeView
from headrace.status.answer import SourceStatus
from headrace.status.table import duration, size

NAMES = ("database", "edge", "interconnect", "bridge", "Kafka", "bronze", "silver")
#: A lag is worth a look, and is wrong, from so many seconds on; of the lake, which is loaded now and then, from more.
_WARN, _BAD = 60.0, 300.0
_LAKE_WARN = 86_400.0
#: How long a source is suspect after a record of its was quarantined, in seconds.
_SUSPECT_SECONDS = 7 * 86_400.0
#: Of the log that the source may still write, and of the spool, so much taken is worth a look.
_SHARE = 0.8


class Hop(NamedTuple):
    """One hop of a source's path."""

    name: str
    state: str
    #: A word or two.
    word: str
    #: The figure that matters most there, at most seven characters; may be empty.
    figure: str = ""
    #: What the figure is, or why the state is what it is.
    detail: str = ""


def to_kafka(seen: SourceSeen) -> tuple[Hop, ...]:
    """Return the hops from the database to Kafka, as the bridge reports them."""
    status = seen.status
    if seen.problem:
        # What it reported last may be wrong by now.
        late = [Hop(name, "unknown", "not known", "", "its bridge does not answer") for name in NAMES[:3]]
        return (
            *late,
            Hop("bridge", "bad", "no answer", "", seen.problem),
            Hop("Kafka", "unknown", "not known", "", "its bridge does not answer"),
        )
    if status.state in {"elsewhere", "not served", "not known", "stopped"}:
        state, why = {
            "elsewhere": ("idle", "another bridge serves it: name all bridges with --at"),
            "not served": ("bad", status.reason),
            "not known": ("unknown", "no bridge has reported it yet"),
            "stopped": ("warn", "the bridge has stopped serving it"),
        }[status.state]
        early = [Hop(name, "idle" if state == "idle" else "unknown", "not known") for name in NAMES[:3]]
        kafka = Hop("Kafka", "idle" if state == "idle" else "unknown", "not known")
        return (*early, Hop("bridge", state, status.state, "", why), kafka)
    return (_database(status), _edge(status), _interconnect(status), _bridge(status), _kafka(status))


def _database(status: SourceStatus) -> Hop:
    figure = size(status.retained_wal_bytes) if status.retained_wal_bytes is not None else ""
    kept = f"{figure}B of log kept for the edge" if figure else ""
    if status.edge_state == "database down":
        return Hop("database", "bad", "down", figure, _first(status) or "the edge cannot read its log")
    if status.edge_state in {"silent", "needs an operator", "stopped", None}:
        return Hop("database", "unknown", "not known", "", "its edge is not heard")
    safe, retained = status.safe_wal_bytes, status.retained_wal_bytes
    if safe is not None and retained is not None and retained > _SHARE * (safe + retained):
        return Hop(
            "database", "warn", "log fills", figure, f"{kept}; {size(safe)}B may still be written before it is lost"
        )
    return Hop("database", "ok", "read", figure, kept)


def _edge(status: SourceStatus) -> Hop:
    state, lag, warnings = status.edge_state, status.captured_lag_seconds, status.warnings
    figure = duration(lag) if lag is not None else ""
    spool, limit = status.spool_bytes, status.spool_limit_bytes
    level = _level(lag)
    hop = Hop("edge", "ok", "captures", figure, f"{figure} behind the source's log" if figure else "")
    if state in {None, "silent", "needs an operator", "stopped"}:
        hop = _ended(status)
    elif state == "starting":
        hop = Hop("edge", "warn", state, figure, _first(status))
    elif state != "capturing":
        hop = Hop("edge", "ok", "runs", figure, "it waits for what is down")
    elif spool is not None and limit and spool > _SHARE * limit:
        hop = Hop("edge", "warn", "spool fills", size(spool), "capture waits when its spool is full")
    elif level in {"warn", "bad"}:
        hop = Hop("edge", level, "behind", figure, f"reading is {figure} behind the source's log")
    elif warnings:
        hop = Hop("edge", "warn", "warns", figure, _first(status))
    return hop


def _ended(status: SourceStatus) -> Hop:
    """Return the edge that does not run, or is not heard."""
    if status.edge_state in {"needs an operator", "stopped"}:
        return Hop("edge", "bad", status.edge_state, "", _first(status) or "it has ended")
    heard = duration(status.heard_seconds) if status.heard_seconds is not None else ""
    return Hop("edge", "bad", "silent", heard, f"not heard for {heard}" if heard else "not heard yet")


def _interconnect(status: SourceStatus) -> Hop:
    state, lag = status.edge_state, status.accepted_lag_seconds
    waiting = status.unacknowledged_batches
    figure = duration(lag) if lag is not None else ""
    if state in {"interconnect down", "not acknowledged"}:
        return Hop("interconnect", "bad", "down" if state == "interconnect down" else "stuck", figure, _first(status))
    if state in {"silent", None}:
        return Hop("interconnect", "unknown", "not known", "", "its edge is not heard")
    if state in {"needs an operator", "stopped"}:
        return Hop("interconnect", "idle", "not in use", "", "its edge has ended")
    text = f"{waiting} batch{'es' * (waiting > 1)} not accepted yet" if waiting else "everything sent is accepted"
    level = _level(lag)
    return Hop("interconnect", level, "delivers" if level == "ok" else "behind", figure, text)


def _bridge(status: SourceStatus) -> Hop:
    if status.state == "serving":
        figure = duration(status.heard_seconds) if status.heard_seconds is not None else ""
        return Hop("bridge", "ok", "serves", figure, f"heard {figure} ago" if figure else "")
    if status.state in {"gap", "needs an operator"}:
        return Hop("bridge", "bad", status.state, "", status.reason)
    return Hop("bridge", "warn", status.state, "", status.reason)


def _kafka(status: SourceStatus) -> Hop:
    lag = status.committed_lag_seconds
    figure = duration(lag) if lag is not None else ""
    if status.state == "waiting for Kafka":
        return Hop("Kafka", "bad", "waits", figure, status.reason)
    level = _level(lag)
    text = f"what is committed is {figure} behind the source's log" if figure else "nothing is known of its lag yet"
    return Hop("Kafka", level, "committed" if level == "ok" else "behind", figure, text)


def bronze(status: SourceStatus, lake: LakeView, now: float, *, is_heard: bool = True) -> Hop:
    """Return the hop from Kafka into bronze, by the loads that are recorded."""
    if not lake.configured:
        return Hop("bronze", "unknown", "no lake", "", "start the console with --lake to see it")
    reached = lake.reached.get(("bronze", status.source))
    lag = lake.lag("bronze", status.source, status.position, now, is_heard=is_heard)
    if reached is not None and lag is None:
        return Hop("bronze", "unknown", "not known", "", "what Kafka has of it is not known")
    if reached is None or lag is None:
        return Hop("bronze", "unknown", "not loaded", "", lake.problem or "no load has brought anything of it")
    apart = lake.quarantined.get(status.source)
    if apart is not None and (since := now - apart.newest_at.timestamp()) < _SUSPECT_SECONDS:
        said = f"{apart.records} records in its partitions are none of it, the newest quarantined {duration(since)} ago"
        return Hop("bronze", "warn", "suspect", duration(lag), said)
    state, word = ("ok", "loaded") if lag < _LAKE_WARN else ("warn", "behind")
    lacks = f"what it lacks is at most {duration(lag)} old" if lag else "it has all that Kafka has"
    return Hop(
        "bronze", state, word, duration(lag), f"{lacks}; loaded {duration(now - reached.finished_at.timestamp())} ago"
    )


def silver(status: SourceStatus, lake: LakeView, stream: str, lag: float | None) -> Hop:
    """Return the hop into silver, by what is published; `lag` is how old what readers lack may be, in seconds."""
    if not lake.configured:
        return Hop("silver", "unknown", "no lake", "", "start the console with --lake to see it")
    figure = duration(lag) if lag is not None else ""
    if trouble := _trouble(status.source, lake, stream, copies=lag is not None):
        return Hop("silver", "warn", trouble[0], figure, trouble[1])
    if lag is None:
        if lake.reached.get(("silver", status.source)) is not None:
            return Hop("silver", "unknown", "not known", "", "what Kafka has of it is not known")
        return Hop("silver", "unknown", "not loaded", "", lake.problem or "nothing of it is published")
    if lag >= _LAKE_WARN:
        return Hop("silver", "warn", "behind", figure, f"what is published is {figure} behind")
    return Hop(
        "silver",
        "ok",
        "published",
        figure,
        f"what readers lack is at most {figure} old" if lag else "readers see all that is committed",
    )


def _trouble(source: str, lake: LakeView, stream: str, *, copies: bool) -> tuple[str, str] | None:
    """Return a word and a sentence for what is wrong with tables of a source; `copies` that are under way count too."""
    own = lake.tables_of(stream, source)
    if stopped := [table.table for table in own if table.is_stopped_for(source)]:
        return "stopped", f"tables that stopped: {_listed(stopped)}"
    verdicts = lake.verdicts_of_source(stream, source)
    if differing := [table for table, found in verdicts.items() if found.verdict == "not equal"]:
        return "differs", f"verification found a difference in {_listed(differing)}"
    if copies and (copying := [table.table for table in own if source in table.copying]):
        return "copying", f"copies under way: {_listed(copying)}"
    return None


def _level(lag: float | None) -> str:
    if lag is None:
        return "unknown"
    return "ok" if lag < _WARN else "warn" if lag < _BAD else "bad"


def _first(status: SourceStatus) -> str:
    """Return what explains the state best."""
    return next(iter(status.warnings), status.reason)


def _listed(names: list[str]) -> str:
    return ", ".join(sorted(names)[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
