"""Transactions that are decoded and that readers may not see yet: compared with a snapshot, and kept until they are seen."""

import pytest

from edge.postgres.visibility import Unseen, hidden, near
from headrace.errors import NotConnected

ROUND = 1 << 32


class Reading:
    """The queries of a server whose snapshot is given; None while it cannot be reached."""

    def __init__(self, snapshot):
        self.snapshot = snapshot

    def value_within(self, _seconds, _query):
        if self.snapshot is None:
            raise NotConnected("the connection was lost")
        return self.snapshot


@pytest.mark.parametrize(
    ("seen", "xids", "lacks"),
    [
        ("100:100:", (), False),
        ("100:100:", (90, 99), False),
        ("100:100:", (99, 100), True),
        ("90:100:95,97", (91, 96, 99), False),
        ("90:100:95,97", (91, 97), True),
        (f"{ROUND - 6}:{ROUND + 4}:{ROUND - 1}", (ROUND - 2, ROUND + 2), False),
        (f"{ROUND - 6}:{ROUND + 4}:{ROUND - 1}", (ROUND - 1,), True),
        (f"{ROUND - 6}:{ROUND + 4}:{ROUND + 1}", (ROUND + 1,), True),
        (f"{ROUND - 6}:{ROUND + 4}:", (ROUND + 5,), True),
    ],
)
def test_a_chunk_shows_which_transactions_it_did_not_see(seen, xids, lacks):
    assert hidden(seen, xids) is lacks


@pytest.mark.parametrize("reference", [1, 1000, ROUND - 1, ROUND, 7 * ROUND + 5])
@pytest.mark.parametrize("distance", [-900, -1, 0, 1, 1 << 30])
def test_the_logs_numbers_go_round_and_ours_do_not(reference, distance):
    if reference + distance > 0:
        assert near((reference + distance) % ROUND, reference) == reference + distance


def test_a_transaction_is_kept_until_a_snapshot_has_it_however_many_follow():
    unseen, server = Unseen(), Reading(f"{ROUND}:{ROUND}:")
    unseen.begin(server, 1, [])
    for xid in range(10_000):
        unseen.add(xid)
        server.snapshot = f"{ROUND}:{ROUND + xid + 1}:{ROUND}"
        if unseen.is_look_due:
            unseen.look()

    assert unseen.look() == (ROUND,)
    server.snapshot = f"{ROUND + 10_000}:{ROUND + 10_000}:"
    assert unseen.look() == ()


def test_a_server_that_cannot_be_queried_shows_none_of_them():
    unseen, server = Unseen(), Reading("100:100:")
    unseen.begin(server, 1, [])
    unseen.add(100)
    server.snapshot = None

    assert unseen.look() == (100,)


def test_a_look_that_fails_ends_the_session_so_that_the_list_does_not_grow_until_a_restart():
    """G2: transactions were kept for ever after one failure of the ordinary connection."""
    unseen, server = Unseen(), Reading("100:100:")
    unseen.begin(server, 1, [])
    unseen.add(100)
    server.snapshot = None
    unseen.look()
    assert unseen.lost

    unseen.begin(Reading("101:101:"), 1, [])
    assert (unseen.lost, unseen.xids) == (False, ())


def test_another_session_goes_on_with_them_and_a_promoted_standby_shows_all_that_its_log_has():
    unseen = Unseen()
    unseen.begin(Reading("100:101:100"), 1, [100])
    unseen.begin(Reading("100:102:100"), 1, [])
    kept = unseen.xids
    unseen.begin(Reading("90:90:"), 2, [])

    assert (kept, unseen.xids) == ((100,), ())
