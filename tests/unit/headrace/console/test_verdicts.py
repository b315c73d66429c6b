"""What the console makes of recorded verifications, and of positions: read from Delta tables as a lake has them."""

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from headrace.configuration.lake import Stream
from headrace.console import hops
from headrace.console.lake import Lake
from headrace.console.lake_view import LakeView, Reached, Verdict
from headrace.status.answer import SourceStatus

NOW = datetime.now(UTC)
STREAMS = {"bank": Stream(sources=["jakarta/bank", "london/bank"])}


@pytest.fixture
def verdicts(tmp_path):
    """Return a function that records verifications, each hours ago, and returns the verdicts that are shown."""
    state = pa.table(
        {
            "stream": ["bank"],
            "load": [1],
            "changes": [0],
            "finished_at": [NOW],
            "state": ["published"],
            **{name: pa.array([None], pa.string()) for name in ("table", "reason")},
            **{name: pa.array([None], pa.int64()) for name in ("version",)},
            "keyed": pa.array([True]),
            **{
                name: pa.array([[]], pa.map_(pa.string(), pa.string())) for name in ("positions", "copying", "warnings")
            },
        }
    )
    write_deltalake(str(tmp_path / "state"), state)

    def shown(*recorded):
        rows = [
            {
                "verified_at": NOW - timedelta(hours=hours),
                "stream": "bank",
                "source": source,
                "table": "public.a",
                "verdict": verdict,
                "rows_source": 2,
                "rows_lake": 1,
                "ranges": 100,
                "ranges_compared": compared,
            }
            for hours, source, verdict, compared in recorded
        ]
        write_deltalake(str(tmp_path / "verified"), pa.Table.from_pylist(rows), mode="overwrite")
        lake = Lake(str(tmp_path), STREAMS)
        lake.look()
        assert lake.view().problem == ""
        return {source: one.verdict for (_, source, _), one in lake.view().verdicts.items()}

    return shown


@pytest.mark.parametrize(
    ("later", "shown"),
    [
        ([("equal", 5)], "not equal"),
        ([("not compared", 0)], "not equal"),
        ([("equal", 100)], "equal"),
        ([("equal", 100), ("not compared", 0)], "not compared"),
        ([("equal", 100), ("not equal", 5), ("equal", 4)], "not equal"),
        ([("equal", 100), ("not equal", 5), ("equal", 5)], "equal"),
    ],
)
def test_v5_a_difference_stays_until_as_much_of_the_table_was_equal(verdicts, later, shown):
    """V5: the 'equal' of a sample of 5 % took the place of a full 'not equal', and the alert resolved."""
    recorded = [(10 - place, "jakarta/bank", *one) for place, one in enumerate(later)]
    assert verdicts((20, "jakarta/bank", "not equal", 100), *recorded) == {"jakarta/bank": shown}


def test_v5_a_source_that_the_lake_s_file_has_no_more_is_not_shown(verdicts):
    recorded = [(1, source, "not equal", 3) for source in ("jakarta/bank", "retired/bank")]
    assert verdicts(*recorded) == {"jakarta/bank": "not equal"}


def test_v12_a_source_that_lacks_nothing_is_fresh_and_one_whose_place_is_not_known_is_not_known():
    """V12: the end of a transaction is beyond its last change, so with [records] transactions an idle source grew old."""
    now = NOW.timestamp()
    transaction = "692010c0/0000000001a00000"
    reached = Reached(upto=f"{transaction}/00000002", commit_time=NOW - timedelta(days=3), finished_at=NOW)
    view = LakeView(reached={(step, "a/b"): reached for step in ("bronze", "silver")})

    later = "692010c0/0000000001a00008/00000001"
    assert view.lag("silver", "a/b", later, now) == pytest.approx(3 * 86400)
    assert view.lag("silver", "a/b", f"{transaction}/00000002", now) == 0.0
    assert view.lag("silver", "a/b", f"{transaction}/00000003", now) == 0.0
    # Q11: after three quiet days the next change is not three days old
    assert view.lag("silver", "a/b", later, now + 20) == pytest.approx(20)
    # A bridge that is not heard may have committed more since.
    assert view.lag("silver", "a/b", f"{transaction}/00000003", now + 30, is_heard=False) == 0.0
    assert view.lag("silver", "a/b", later, now + 40) == pytest.approx(40)
    # the bridge is held, or has not taken the source over
    assert view.lag("silver", "a/b", None, now) is None
    status = SourceStatus(source="a/b", state="serving")
    for hop in (hops.bronze(status, view, now), hops.silver(status, view, "bank", None)):
        assert (hop.state, hop.word) == ("unknown", "not known")


def test_q5_a_source_that_verification_found_to_differ_is_not_well():
    """Q5: verification had found a difference, and the overview reported that all is well."""
    verdict = Verdict(verdict="not equal", verified_at=NOW, rows_source=2, rows_lake=1, compared=100.0)
    view = LakeView(verdicts={("bank", "a/b", "public.a"): verdict})
    hop = hops.silver(SourceStatus(source="a/b", state="serving"), view, "bank", 0.0)
    assert (hop.state, hop.word) == ("warn", "differs")
    assert "public.a" in hop.detail
    assert hops.silver(SourceStatus(source="c/d", state="serving"), view, "bank", 0.0).state == "ok"


def test_what_is_quarantined_is_counted_by_source(verdicts, tmp_path):
    rows = [
        {
            "stream": "bank",
            "source": source,
            "topic": "bank",
            "offset": number,
            "quarantined_at": NOW - timedelta(hours=number),
        }
        for number, source in enumerate(["a/one", "a/one", "a/two", None])
    ]
    write_deltalake(str(tmp_path / "quarantine"), pa.Table.from_pylist(rows))
    lake = Lake(str(tmp_path), STREAMS)
    lake.look()
    found = {source: (each.records, each.newest_at) for source, each in lake.view().quarantined.items()}
    assert found == {"a/one": (2, NOW), "a/two": (1, NOW - timedelta(hours=2))}
