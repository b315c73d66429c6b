"""For how long Delta keeps logs and replaced files of each kind of table."""

import msgspec
import pytest

from headrace.configuration.lake import LakeFile
from spark_jobs.bronze import sink
from spark_jobs.state import retention


def days(properties):
    return [int(properties[name].split()[1]) for name in (retention.FILES, retention.LOG)]


@pytest.mark.parametrize("keep", [1, 2, 7, 30])
def test_l41_logs_are_kept_no_longer_than_what_is_published_needs_and_as_delta_allows(keep):
    """L41: every log was kept for 30 days, and on a file system each look at a table lists all of it."""
    given = {
        "lake": {"root": "/lake", "keep_days": keep},
        "kafka": {"bootstrap": "k:1"},
        "streams": {"bank": {"sources": ["a/b"]}},
    }
    lake = msgspec.convert(given, LakeFile)
    silver, bronze, own = map(days, (retention.properties(lake), retention.of_bronze(lake), retention.of_own()))
    # Delta refuses a log that is kept for a shorter time than files.
    assert all(files <= log for files, log in (silver, bronze, own))
    # VACUUM would remove what Delta names no more.
    assert min(silver[0], bronze[0]) > keep
    # The version that was published `keep` days ago may have been half as old.
    assert silver[1] >= keep + (keep + 1) / 2
    assert bronze[1] > sink._OLD.days
    assert keep > 15 or max(silver[1], bronze[1], own[1]) < 30
