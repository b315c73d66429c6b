"""The chain: every kind of batch is distinguished from every other, and nothing but the stream ever comes out."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from bridge.model.chain import Gap, Next, Repeat, Stale, judge
from headrace.position import Position
from tests.edge.source_log import cut, log, of

SOURCE = "jakarta/bank"
EPOCH = 1_700_000_000
ROWS = log(SOURCE, 30, epoch=EPOCH)


def batch(first, end, *, rows=ROWS):
    follows = rows[first - 1].position if first else Position.start(rows[0].position.epoch)
    return of(SOURCE, rows[first:end], follows)


def tail(count):
    return ROWS[count - 1].position


@pytest.mark.parametrize(
    ("produced", "first", "end", "verdict"),
    [
        (10, 10, 20, Next(0)),
        (10, 5, 20, Next(5)),
        (10, 0, 11, Next(10)),
        (10, 0, 10, Repeat()),
        (10, 3, 7, Repeat()),
        (10, 11, 20, Gap(ROWS[10].position, ROWS[9].position)),
        (10, 29, 30, Gap(ROWS[28].position, ROWS[9].position)),
    ],
    ids=["next", "overlaps", "overlaps from the start", "repeat", "repeat inside", "one missing", "many missing"],
)
def test_a_batch_of_the_same_epoch_is_next_repeat_or_gap(produced, first, end, verdict):
    assert judge(tail(produced), batch(first, end)) == verdict


@pytest.mark.parametrize(
    ("at", "verdict"),
    [(10, Repeat()), (4, Repeat()), (11, Gap(ROWS[10].position, ROWS[9].position))],
    ids=["at the tail", "before the tail", "beyond the tail"],
)
def test_an_empty_batch_is_a_repeat_unless_something_before_it_is_missing(at, verdict):
    assert judge(tail(10), batch(at, at)) == verdict


def test_a_source_of_which_nothing_is_known_begins_with_an_epoch_only():
    assert judge(None, batch(0, 5)) == Next(0, starts_epoch=True)
    assert judge(None, batch(0, 0)) == Next(0, starts_epoch=True)
    assert judge(None, batch(5, 10)) == Gap(ROWS[4].position, None)


def test_a_greater_epoch_is_taken_only_from_its_start():
    later = log(SOURCE, 10, epoch=EPOCH + 5)
    assert judge(tail(10), batch(0, 3, rows=later)) == Next(0, starts_epoch=True)
    assert judge(tail(10), batch(0, 0, rows=later)) == Next(0, starts_epoch=True)
    assert judge(tail(10), batch(3, 5, rows=later)) == Gap(later[2].position, tail(10))


def test_a_smaller_epoch_is_stale_whatever_it_says():
    former = log(SOURCE, 10, epoch=EPOCH - 5)
    assert judge(tail(10), batch(0, 3, rows=former)) == Stale(EPOCH - 5, tail(10))
    assert judge(tail(10), batch(3, 5, rows=former)) == Stale(EPOCH - 5, tail(10))


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.data())
def test_any_order_any_repeats_and_any_cutting_yield_the_stream_and_nothing_else(data):
    # given several cuttings of one log of two epochs, as edges that restarted would make them
    first = log(SOURCE, data.draw(st.integers(1, 25)), epoch=EPOCH, seed=data.draw(st.integers(0, 9)))
    second = log(SOURCE, data.draw(st.integers(0, 15)), epoch=EPOCH + 9, start=len(first))
    sizes = st.integers(1, 9)
    known = []
    for _ in range(data.draw(st.integers(1, 3))):
        known += cut(SOURCE, first, lambda: data.draw(sizes))
        known += cut(SOURCE, second, lambda: data.draw(sizes)) if second else []
    deliveries = data.draw(st.lists(st.sampled_from(known), max_size=60))
    # when they arrive in any order, each any number of times
    out, at = [], None
    for each in deliveries:
        verdict = judge(at, each)
        if isinstance(verdict, Next):
            out += each.values[verdict.begin :]
            at = each.last
    # then what came out is a prefix of the first epoch, followed, if the second began, by a prefix of that
    values = [row.value for row in first]
    old = [value for value in out if value in values]
    new = out[len(old) :]
    assert old == values[: len(old)]
    assert new == [row.value for row in second[: len(new)]]


@settings(deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(0, 30))
def test_go_back_n_after_any_loss_brings_the_whole_stream(seed, sizes, lost):
    # given a cutting of which one batch is lost the first time
    rows = log(SOURCE, 40, seed=seed)
    pieces = iter(sizes)
    batches = cut(SOURCE, rows, lambda: next(pieces, 5))
    arriving = [each for number, each in enumerate(batches) if number != lost] + batches
    # when all is sent again from the oldest that was not accepted
    out, at = [], None
    for each in arriving:
        verdict = judge(at, each)
        if isinstance(verdict, Next):
            out += each.values[verdict.begin :]
            at = each.last
    # then
    assert out == [row.value for row in rows]
