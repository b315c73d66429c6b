"""Up to which version of bronze a part of a load reads."""

from types import SimpleNamespace

import pytest

from spark_jobs.bronze import increment
from spark_jobs.bronze.increment import Since
from spark_jobs.silver import load
from spark_jobs.silver.load import SilverReport
from spark_jobs.state.offsets import Held, Progress
from spark_jobs.state.published_rows import Published

LAKE = SimpleNamespace(root="/lake")


@pytest.mark.parametrize(
    ("published", "since", "upto"), [(0, None, 7), (4, Since(5), 7), (4, None, 20)], ids=["first", "known", "whole"]
)
def test_l40_what_is_read_as_a_whole_is_read_once(monkeypatch, published, since, upto):
    # else a part would begin where the one before it did, and none would reach the end
    monkeypatch.setattr(increment, "bounded", lambda *_, **__: 7)
    monkeypatch.setattr(load.bronze_job, "reach", lambda *_: None)
    before = Published(stream="bank", load=published, bronze_version=5 if published else None)
    assert load._part(None, LAKE, before, since, 20, None) == (upto, None)


def test_l40_parts_are_reported_as_one_load():
    silver_report = SilverReport(
        stream="bank", load=4, ranges={"a/b": ("1", "3")}, changes={"public.t": 2}, seconds=1.0
    )
    two = SilverReport(
        stream="bank", load=5, ranges={"a/b": ("3", "7"), "c/d": ("", "2")}, changes={"public.t": 1, "public.o": 4}
    )
    report = load._together(silver_report, two)
    assert (report.load, report.seconds) == (5, 1.0)
    assert report.ranges == {"a/b": ("1", "7"), "c/d": ("", "2")}
    assert report.changes == {"public.t": 3, "public.o": 4}


def test_a_topic_is_missed_where_it_is_known_which_ones_are_read():
    lake = SimpleNamespace(prefix=lambda _: "bank")
    assert load.find_unread(lake, "bank", {"public.t"}, Progress(topics={"bank.public.t": Held()})) == {}
    missing = {"public.t": "bank.public.t"}
    assert load.find_unread(lake, "bank", {"public.t"}, Progress(topics={"bank": Held()})) == missing
    # a note whose base is gone does not tell, and nothing is passed over for it
    assert load.find_unread(lake, "bank", {"public.t"}, None) == missing
