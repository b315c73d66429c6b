"""How long a transaction is put off: as long as commits take, not as long as one of them took, and never for full ones."""

from bridge.rest import ENDING_SECONDS, LONGEST_SECONDS, SMALL, Rest


def after(*commits: tuple[float, int]) -> float:
    rest = Rest()
    for took, records in commits:
        rest.note(took, records)
    return rest.seconds


def test_a_transaction_is_put_off_for_as_long_as_commits_take():
    assert after((0.02, 5), (0.02, 5)) == 0.02


def test_the_transaction_before_has_time_to_end_after_a_quick_commit():
    assert after((0.001, 5)) == ENDING_SECONDS


def test_one_slow_commit_puts_nothing_off():
    assert after((0.008, 5), (0.09, 5)) == 0.008


def test_slow_commits_one_after_another_do():
    assert after((0.008, 5), *[(0.09, 5)] * 4) == 0.09


def test_it_is_put_off_for_no_longer_than_the_bound():
    assert after((3.0, 5)) == LONGEST_SECONDS


def test_a_full_transaction_puts_off_only_until_it_has_ended():
    assert after((0.09, SMALL)) == ENDING_SECONDS
