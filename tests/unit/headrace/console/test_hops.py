"""The hops of a source: which is failing, and what its row shows, for everything that a bridge may report."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from headrace.console import sources
from headrace.console.bridges import Bridges, BridgesView, SourceSeen
from headrace.console.hops import NAMES
from headrace.console.lake_view import LakeView, Quarantined, Reached, StreamPublished, TablePublished
from headrace.status.answer import Answer, SourceStatus

NOW = datetime(2026, 11, 1, tzinfo=UTC)
WELL = {
    "source": "jakarta/bank",
    "state": "serving",
    "position": "6b04100c/0000000001d53818/00000003",
    "records_per_second": 12.0,
    "captured_lag_seconds": 0.0,
    "accepted_lag_seconds": 0.0,
    "committed_lag_seconds": 0.1,
    "retained_wal_bytes": 1000,
    "safe_wal_bytes": 10**9,
    "spool_bytes": 0,
    "spool_limit_bytes": 1000,
    "unacknowledged_batches": 0,
    "heard_seconds": 0.2,
    "edge_state": "capturing",
}


def row(lake=None, problem="", **changes):
    seen = SourceSeen(status=SourceStatus(**WELL | changes), bridge="b:1", problem=problem)
    return sources.row(seen, lake or LakeView(configured=False), "bank", NOW.timestamp())


def states(found):
    return dict(zip(NAMES, (hop.state for hop in found.hops), strict=True))


def lake(upto=WELL["position"], table="published", **changes):
    """Return a lake that has the source up to a position, committed an hour ago."""
    ago = NOW - timedelta(hours=1)
    reached = Reached(upto=upto, commit_time=ago, finished_at=ago)
    one = {
        "stream": "bank",
        "table": "public.t",
        "name": "t",
        "state": table,
        "reason": "a column changed",
        "keyed": True,
    }
    one |= {
        "warnings": (),
        "version": 1,
        "positions": {"jakarta/bank": upto},
        "copying": {},
        "published_at": ago,
    } | changes
    stream = StreamPublished(stream="bank", load=1, changes=1, finished_at=ago, positions={"jakarta/bank": upto})
    return LakeView(
        streams={"bank": stream},
        tables=(TablePublished(**one),),
        reached={(step, "jakarta/bank"): reached for step in ("bronze", "silver")},
    )


def test_a_source_whose_hops_are_all_well_is_well_and_nothing_is_to_be_explained():
    result = row(lake())
    assert set(states(result).values()) == {"ok"}
    assert (result.state, result.why, result.freshness) == ("ok", "", 0.0)


@pytest.mark.parametrize(
    ("changes", "hop", "state", "word"),
    [
        ({"edge_state": "silent", "heard_seconds": 90.0}, "edge", "bad", "silent"),
        ({"edge_state": None, "heard_seconds": None}, "edge", "bad", "silent"),
        ({"edge_state": "needs an operator", "warnings": ["the slot is gone"]}, "edge", "bad", "needs an operator"),
        ({"edge_state": "starting"}, "edge", "warn", "starting"),
        ({"spool_bytes": 900}, "edge", "warn", "spool fills"),
        ({"captured_lag_seconds": 100.0}, "edge", "warn", "behind"),
        ({"captured_lag_seconds": 400.0}, "edge", "bad", "behind"),
        ({"warnings": ["a certificate ends soon"]}, "edge", "warn", "warns"),
        ({"edge_state": "database down", "warnings": ["refused"]}, "database", "bad", "down"),
        ({"retained_wal_bytes": 900, "safe_wal_bytes": 100}, "database", "warn", "log fills"),
        ({"edge_state": "interconnect down"}, "interconnect", "bad", "down"),
        ({"edge_state": "not acknowledged"}, "interconnect", "bad", "stuck"),
        ({"state": "gap", "reason": "something is missing"}, "bridge", "bad", "gap"),
        ({"state": "needs an operator", "reason": "no topic"}, "bridge", "bad", "needs an operator"),
        ({"state": "waiting for Kafka"}, "Kafka", "bad", "waits"),
        ({"committed_lag_seconds": 400.0}, "Kafka", "bad", "behind"),
    ],
)
def test_what_fails_is_shown_at_its_hop_and_decides_the_state_of_the_source(changes, hop, state, word):
    result = row(lake(), **changes)
    (shown,) = [each for each in result.hops if each.name == hop]
    assert (shown.state, shown.word) == (state, word)
    assert result.state == state
    assert result.why


def test_a_source_is_suspect_for_a_week_after_a_record_in_its_partitions_was_quarantined():
    found = {}
    for days in (1, 8):
        apart = Quarantined(records=3, newest_at=NOW - timedelta(days=days))
        (found[days],) = [
            each for each in row(replace(lake(), quarantined={"jakarta/bank": apart})).hops if each.name == "bronze"
        ]
    assert (found[1].state, found[1].word) == ("warn", "suspect")
    assert found[1].detail.startswith("3 records in its partitions are none of it")
    assert found[8].word == "loaded"
    other = replace(lake(), quarantined={"london/bank": Quarantined(records=3, newest_at=NOW)})
    assert states(row(other))["bronze"] == "ok"


def test_of_a_bridge_that_does_not_answer_nothing_is_believed_but_that():
    result = row(lake(), problem="nobody answers at b:1")
    assert states(result) == dict.fromkeys(NAMES, "unknown") | {"bridge": "bad", "bronze": "ok", "silver": "ok"}
    assert (result.state, result.why) == ("bad", "bridge: nobody answers at b:1")
    noted = sources.figures([result])
    assert noted[sources.LAG, "jakarta/bank"] is None
    assert noted[sources.LAG, sources.ALL] is None


@pytest.mark.parametrize(
    ("state", "shown"), [("elsewhere", "idle"), ("not served", "bad"), ("not known", "unknown"), ("stopped", "warn")]
)
def test_a_source_that_this_bridge_does_not_serve_is_shown_by_who_does(state, shown):
    assert row(lake(), state=state, edge_state=None).state == shown


def test_a_source_that_all_bridges_have_elsewhere_is_not_served():
    """Each left it to another one, and the console showed nothing wrong."""
    bridges = Bridges(("a:1", "b:1"))

    def look(state):
        found = [SourceStatus(source="jakarta/bank", state=state)]
        return lambda *_: (Answer(part="bridge", running=True, ready=True, sources=found), "")

    def seen():
        return bridges.view().sources["jakarta/bank"].status.state

    bridges.ask("a:1", look("elsewhere"))
    # before the other one was asked
    assert seen() == "elsewhere"
    bridges.ask("b:1", look("serving"))
    assert seen() == "serving"
    bridges.ask("b:1", look("elsewhere"))
    assert seen() == "not served"
    # One that does not answer serves it no more, or nobody hears of it.
    bridges.ask("b:1", lambda *_: (None, "nobody answers at b:1"))
    assert seen() == "not served"


def test_what_the_lake_lacks_is_as_old_as_the_newest_change_that_it_has():
    assert row(lake("6b04100c/0000000001d00000/00000000")).freshness == 3600
    behind = row(lake("6b04100c/0000000001d00000/00000000"))
    assert states(behind)["silver"] == "ok"
    assert row(LakeView(problem="away")).freshness is None
    assert states(row(LakeView(problem="away")))["silver"] == "unknown"


def test_a_table_that_stopped_or_is_copied_is_shown_at_silver():
    stopped = row(lake(table="stopped"))
    assert (stopped.state, stopped.hops[6].detail) == ("warn", "tables that stopped: public.t")
    held_back = row(lake(table="held back", held_back={"jakarta/bank": "why"}))
    assert (held_back.state, held_back.hops[6].detail) == ("warn", "tables that hold it back: public.t")
    other = row(lake(table="held back", held_back={"london/bank": "why"}))
    assert states(other)["silver"] == "ok"
    copied = row(lake(table="copying", copying={"jakarta/bank": "x"}))
    assert (copied.state, copied.hops[6].word) == ("warn", "copying")


def test_the_worst_lag_and_the_rate_of_all_are_noted():
    seen = {
        name: SourceSeen(status=SourceStatus(**WELL | {"source": name, "committed_lag_seconds": lag}))
        for name, lag in (("a/b", 3.0), ("c/d", 7.0))
    }
    rows = sources.rows(BridgesView(bridges=(), sources=seen), LakeView(configured=False), {"a/b": "bank"})
    noted = sources.figures(rows)
    assert (noted[sources.LAG, sources.ALL], noted[sources.RATE, sources.ALL]) == (7.0, 24.0)
    assert sources.counts(rows) == {"bad": 0, "warn": 0, "unknown": 0, "idle": 0, "ok": 2}
