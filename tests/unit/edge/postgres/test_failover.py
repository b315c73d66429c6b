"""Another timeline: where the logs part, and what that allows."""

from types import SimpleNamespace

import pytest

from edge.engine import CheckpointChanged
from edge.postgres import failover
from edge.postgres.checkpoint import LastCommit, format_lsn
from edge.postgres.failover import follow, parted_at
from edge.postgres.replication import System
from headrace.errors import NeedsOperator
from headrace.position import Position
from tests.unit.edge.progress.test_checkpoint import LSN, checkpoint

HISTORY = "1\t0/3000110\tno recovery target specified\n\n# a comment\n2\t16/B374D900\tno recovery target specified\n"
LEFT = 0x16_B374D900


class Server:
    """A server that is on a timeline, has a history of it, and has the slot or not."""

    def __init__(self, timeline=3, history=HISTORY, *, slot=True):
        self.system = System("7000", timeline, LEFT + 1000)
        self._history = history
        self._slot = slot

    def timeline_history(self, timeline):
        assert timeline == self.system.timeline
        return self._history

    def value(self, _query, *_parameters):
        row = {"plugin": "pgoutput", "database": "bank", "active_pid": None, "confirmed_flush_lsn": "16/B374D000"}
        more = {"restart_lsn": "16/B374C000", "wal_status": "reserved", "safe_wal_size": None, "failover": True}
        return row | more if self._slot else None


def seen(server, **changes):
    return follow(server, server, server.system, checkpoint(timeline=2, guarded=True, **changes))


def test_history_tells_where_each_timeline_was_left():
    assert (parted_at(HISTORY, 1), parted_at(HISTORY, 2), parted_at(HISTORY, 3)) == (0x3000110, LEFT, None)


def test_same_timeline_changes_nothing():
    assert seen(Server(timeline=2)) is None


def test_source_goes_on_at_the_new_timeline_with_the_guard_to_be_looked_at_anew():
    changed = seen(Server())

    assert isinstance(changed, CheckpointChanged)
    assert changed.until == LEFT
    last = LastCommit(checkpoint().confirmed_lsn, 0)
    assert changed.checkpoint == checkpoint(timeline=3, guarded=False, last_commit=last)


def test_idle_log_that_was_confirmed_beyond_the_parting_is_given_back():
    changed = seen(Server(), confirmed_lsn=format_lsn(LEFT + 500))

    assert changed.checkpoint.confirmed == LEFT


@pytest.mark.parametrize("place", ["acknowledged", "spooled"])
def test_what_was_captured_at_the_parting_or_beyond_is_refused_with_both_places(place):
    with pytest.raises(NeedsOperator, match=r"left at 16/B374D900, and the source is captured up to 16/B374D900"):
        seen(Server(), **{place: str(Position(7, LEFT, 0))})


def test_former_primary_is_refused():
    with pytest.raises(NeedsOperator, match="this is the former primary"):
        seen(Server(timeline=1))


def test_server_that_does_not_descend_from_ours_is_refused():
    with pytest.raises(NeedsOperator, match="from which it does not descend"):
        seen(Server(history="1\t0/3000110\twhy\n"))


def test_standby_without_the_slot_is_refused():
    with pytest.raises(NeedsOperator, match=f"changes after {format_lsn(LSN)} that were not captured are lost"):
        seen(Server(slot=False))


def test_failover_without_a_guard_is_an_operators_matter():
    server = Server()
    with pytest.raises(NeedsOperator, match="did not hold back") as raised:
        follow(server, server, server.system, checkpoint(timeline=2))

    assert f"{LEFT:016x}" in raised.value.hint


def test_g1_what_is_captured_while_the_watch_looks_is_not_taken_for_a_server_that_was_set_back(monkeypatch):
    outbox = SimpleNamespace(sent=Position(7, 100, 0))

    def end(_database):
        # the log grows, and capture sends what is new before the answer is looked at
        outbox.sent = Position(7, 300, 0)
        return 200

    for name in ("timeline", "check_publication", "guard", "retained_bytes"):
        monkeypatch.setattr(failover, name, lambda *_: None)
    monkeypatch.setattr(failover, "present_slot", lambda *_: SimpleNamespace(safe_bytes=None, wal_status="reserved"))
    monkeypatch.setattr(failover, "log_end", end)
    watch = failover.Watch.__new__(failover.Watch)
    place = Position(7, 100, 0)
    watch._checkpoint = lambda: SimpleNamespace(
        timeline=None, confirmed=100, position=place, promised=None, publication="p", confirmed_lsn="0/64"
    )
    ends = []
    watch._outbox, watch._figures = outbox, SimpleNamespace(saw_log=lambda end, **_: ends.append(end))
    for name in ("_look_at_labels", "_look_at_publication", "warn_of", "warn", "look_at_policy"):
        setattr(watch, name, lambda *_: None)
    watch.look(None)
    assert ends == [200]
