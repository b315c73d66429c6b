"""Waiting itself."""

import pytest

from tests.rules.waiting import eventually


def test_first_true_value_is_returned():
    values = iter([0, None, 7, 8])

    assert eventually(lambda: next(values), every=0) == 7


def test_error_counts_as_not_yet():
    answers = iter([ValueError("early"), "late"])

    def condition():
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    assert eventually(condition, every=0) == "late"


def test_time_that_is_up_names_the_condition_and_the_last_value():
    with pytest.raises(AssertionError, match=r"not within 0\.01 s: it rains; last: 0"):
        eventually(lambda: 0, 0.01, every=0.001, saying="it rains")


def test_time_that_is_up_carries_the_last_error():
    def condition():
        raise ValueError("dry")

    with pytest.raises(AssertionError, match="ValueError") as caught:
        eventually(condition, 0.01, every=0.001)

    assert isinstance(caught.value.__cause__, ValueError)
