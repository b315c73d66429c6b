"""What a person writes: moments, and texts and names that are put into SQL; which columns a history tracks."""

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.configuration.lake import History, Stream
from headrace.errors import ConfigurationError
from spark_jobs import replay
from spark_jobs.silver import quoting


def test_moment_without_a_zone_is_in_utc():
    assert replay.moment("2026-01-31T09:15:00") == datetime(2026, 1, 31, 9, 15, tzinfo=UTC)
    assert replay.moment("2026-01-31 16:15+07:00") == datetime(2026, 1, 31, 16, 15, tzinfo=timezone(timedelta(hours=7)))
    assert replay.moment("2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    with pytest.raises(ConfigurationError, match="'soon' is no moment"):
        replay.moment("soon")


def test_names_and_texts_cannot_end_their_quotes():
    assert quoting.name("a`; DROP") == "`a``; DROP`"
    assert quoting.text("o'brien\\") == "'o\\'brien\\\\'"


def test_history_is_kept_where_it_is_wanted_and_tracks_what_is_named():
    # given
    every = Stream(sources=["a/b"], history=True, tables={"public.log": History(history=False)})
    one = Stream(sources=["a/b"], tables={"public.t": History(track_history_columns=["x"])})
    # then
    assert every.history_of("public.log") is None
    assert every.history_of("public.t").tracked(["x", "y"]) == ["x", "y"]
    assert one.history_of("public.log") is None
    assert one.history_of("public.t").tracked(["x", "y"]) == ["x"]
    assert History(track_history_except_columns=["x"]).tracked(["x", "y"]) == ["y"]
