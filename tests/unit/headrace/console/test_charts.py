"""Figures in memory: what was noted comes back, with holes where nothing was known."""

import time

from headrace.console.charts import POINTS, STEP, History


def now():
    """Return the beginning of this step, so that tests do not depend on the moment."""
    return time.time() // STEP * STEP


def test_figures_come_back_in_order_with_holes_where_nothing_was_noted():
    history, at = History(), now()
    for ago, value in ((5, 1.0), (4, 2.0), (1, 3.0), (0, None)):
        history.record({("lag", "a/b"): value}, at - ago * STEP)
    points = history.series("lag", "a/b", 1000)
    assert [value for _, value in points] == [1.0, 2.0, None, None, 3.0, None]
    assert points[0][0] == at - 5 * STEP
    assert history.series("lag", "a/b", STEP)[0][1] == 3.0
    assert history.series("rate", "a/b", 1000) == []


def test_only_the_newest_points_are_kept_and_what_is_gone_is_forgotten():
    history, at = History(), now()
    for step in range(POINTS + 50):
        history.record({("lag", "a/b"): float(step)}, at - (POINTS + 50 - step) * STEP)
    points = history.series("lag", "a/b", 10**6)
    assert (len(points), points[-1][1]) == (POINTS, POINTS + 49.0)
    history.record({("lag", "c/d"): 1.0}, at + 2 * POINTS * STEP)
    assert history.series("lag", "a/b", 10**6) == []
