"""How long a transaction is put off: as long as the commit before took, and never for full ones."""

from bridge.rest import ENDING_SECONDS, LONGEST_SECONDS, SMALL, rest


def test_a_transaction_is_put_off_for_as_long_as_the_commit_took():
    assert rest(0.02, 5) == 0.02


def test_the_transaction_before_has_time_to_end_after_a_quick_commit():
    assert rest(0.001, 5) == ENDING_SECONDS


def test_it_is_put_off_for_no_longer_than_the_bound():
    assert rest(3.0, 5) == LONGEST_SECONDS


def test_a_full_transaction_puts_off_only_until_it_has_ended():
    assert rest(0.09, SMALL) == ENDING_SECONDS
