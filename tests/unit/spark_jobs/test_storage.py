"""L30: scratch on an object store was never removed, as its folders say "now"; a prompt open for a day could lose its own."""

from datetime import UTC, datetime, timedelta

from spark_jobs import storage

NOW = datetime(2026, 1, 31, 9, 15, tzinfo=UTC)


def test_folders_go_by_the_time_in_their_names():
    for days, abandoned in ((0, False), (2, False), (4, True)):
        folder = storage.new_scratch_name(NOW - timedelta(days=days))
        # An object store says "now" of every folder, a local disk when the folder got its last entry.
        assert storage.is_abandoned(folder, NOW, NOW) is abandoned
        assert storage.is_abandoned(folder, NOW - timedelta(days=400), NOW) is abandoned


def test_folders_of_an_earlier_release_go_by_when_they_were_modified():
    old = "0123456789abcdef0123456789abcdef"
    assert not storage.is_abandoned(old, NOW - timedelta(hours=1), NOW)
    assert storage.is_abandoned(old, NOW - timedelta(days=4), NOW)


def test_a_folder_in_use_is_renewed_long_before_it_counts_as_abandoned():
    assert storage.SCRATCH_RENEWED * 2 < storage.SCRATCH_ABANDONED
    assert storage.new_scratch_name(NOW) != storage.new_scratch_name(NOW)
