"""What a person writes: moments, and texts and names that are put into SQL; which columns a history tracks."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.configuration.lake import Stream, TableOptions
from headrace.errors import ConfigurationError
from spark_jobs import storage
from spark_jobs.maintenance import replay


def test_moment_without_a_zone_is_in_utc():
    assert replay.moment("2026-01-31T09:15:00") == datetime(2026, 1, 31, 9, 15, tzinfo=UTC)
    assert replay.moment("2026-01-31 16:15+07:00") == datetime(2026, 1, 31, 16, 15, tzinfo=timezone(timedelta(hours=7)))
    assert replay.moment("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    with pytest.raises(ConfigurationError, match="'soon' is no moment"):
        replay.moment("soon")


def test_names_and_texts_cannot_end_their_quotes():
    assert storage.name("a`; DROP") == "`a``; DROP`"
    assert storage.text("o'brien\\") == "'o\\'brien\\\\'"


def test_history_is_kept_where_it_is_wanted_and_tracks_what_is_named():
    # given
    every = Stream(sources=["a/b"], history=True, tables={"public.log": TableOptions(history=False)})
    stream = Stream(sources=["a/b"], tables={"public.t": TableOptions(track_history_columns=["x"])})
    # then
    assert every.history_of("public.log") is None
    assert every.history_of("public.t").tracked(["x", "y"]) == ["x", "y"]
    assert stream.history_of("public.log") is None
    assert stream.history_of("public.t").tracked(["x", "y"]) == ["x"]
    assert TableOptions(track_history_except_columns=["x"]).tracked(["x", "y"]) == ["y"]


def test_deleted_rows_stay_where_the_stream_or_the_table_says_so():
    # given
    soft = Stream(sources=["a/b"], deletes="soft", tables={"public.log": TableOptions(deletes="hard")})
    hard = Stream(sources=["a/b"], tables={"public.t": TableOptions(deletes="soft")})
    # then
    assert [soft.marks_deleted(name) for name in ("public.t", "public.log")] == [True, False]
    assert [hard.marks_deleted(name) for name in ("public.t", "public.log")] == [True, False]
    # and what is said of deletes says nothing of history
    assert hard.history_of("public.t") is None
