"""Pending connections are bounded in number and age."""

from bridge.amqp.pending_connections import MOST, SECONDS, PendingConnections


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_who_becomes_no_edge_in_time_is_sent_off():
    sent, clock = [], Clock()
    pending = PendingConnections(lambda connection, _reason: sent.append(connection), clock)
    pending.add(1, "one")
    clock.now += SECONDS / 2
    pending.add(2, "two")
    pending.add(3, "three")
    pending.remove(3)
    clock.now += SECONDS / 2
    pending.expire()
    assert sent == ["one"]
    clock.now += SECONDS
    pending.expire()
    assert sent == ["one", "two"]
    assert len(pending) == 0


def test_of_too_many_the_oldest_leaves():
    sent = []
    pending = PendingConnections(lambda connection, _reason: sent.append(connection), Clock())
    for number in range(MOST + 3):
        pending.add(number, number)
    assert sent == [0, 1, 2]
    assert len(pending) == MOST
