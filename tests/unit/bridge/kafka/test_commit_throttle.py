"""How long a transaction is put off: for its own commit, for the other sources', and never for full ones."""

from bridge.kafka.commit_throttle import ENDING_SECONDS, LONGEST_SECONDS, SHARE_SECONDS, SMALL, Rests


def test_a_transaction_is_put_off_for_as_long_as_the_commit_took():
    assert Rests().after("a/b", 0.02, 5) == 0.02


def test_the_transaction_before_has_time_to_end_after_a_quick_commit():
    assert Rests().after("a/b", 0.001, 5) == ENDING_SECONDS


def test_it_is_put_off_for_no_longer_than_the_bound():
    assert Rests().after("a/b", 3.0, 5) == LONGEST_SECONDS


def test_a_full_transaction_puts_off_only_until_it_has_ended():
    assert Rests().after("a/b", 0.09, SMALL) == ENDING_SECONDS


def test_the_more_sources_commit_small_ones_the_longer_each_rests():
    rests = Rests()
    for number in range(29):
        rests.after(f"a/{number}", 0.001, 5)
    assert rests.after("a/29", 0.001, 5) == 30 * SHARE_SECONDS


def test_sources_that_fill_their_transactions_or_are_silent_make_nobody_rest(monkeypatch):
    rests, now = Rests(), 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    for number in range(20):
        rests.after(f"a/{number}", 0.001, 5)
    for number in range(10):
        rests.after(f"a/{number}", 0.001, SMALL)
    assert rests.after("a/20", 0.001, 5) == 11 * SHARE_SECONDS
    now = 102.0
    assert rests.after("a/20", 0.001, 5) == ENDING_SECONDS
