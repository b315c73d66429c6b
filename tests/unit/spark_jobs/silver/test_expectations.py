"""Whether a table's expectations have to be counted again, by the commits since they were."""

import pytest

from spark_jobs.silver import expectations
from spark_jobs.state import delta_log
from spark_jobs.state.published_rows import Quality, Table

EXPECTED = {"positive": "balance >= 0"}
COUNTED = Quality(expectation="positive", expression="balance >= 0", version=10, total=1, total_failing=0)
OPTIMIZE, MERGE = {"operation": "OPTIMIZE"}, {"operation": "MERGE"}


@pytest.mark.parametrize(
    ("commits", "is_current"),
    [
        ([OPTIMIZE, OPTIMIZE], True),
        ([OPTIMIZE, MERGE], False),
        # The table may have moved on beyond what is published.
        ([OPTIMIZE, OPTIMIZE, MERGE], True),
        # They are in the log no more.
        ([], False),
        ([OPTIMIZE], False),
    ],
)
def test_a_table_is_counted_again_unless_all_commits_since_are_known_to_change_no_row(monkeypatch, commits, is_current):
    monkeypatch.setattr(delta_log, "after", lambda _, __, version: enumerate(commits, version + 1))
    table = Table(table="public.t", version=12, quality=(COUNTED,))
    assert expectations._is_current(None, "path", table, EXPECTED) is is_current
    assert not expectations._is_current(None, "path", table, {"positive": "balance > 0"})
