"""Pauses grow, stay within their bounds, and start over after a success."""

from headrace.waiting import Backoff


def test_pauses_stay_between_a_tenth_of_their_bound_and_the_bound():
    backoff = Backoff(first=1.0, longest=8.0)
    for bound in [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]:
        assert bound / 10 <= backoff.pause() <= bound


def test_a_success_starts_over():
    backoff = Backoff(first=1.0, longest=1000.0)
    for _ in range(2000):
        backoff.pause()
    backoff.reset()
    assert backoff.pause() <= 1.0
