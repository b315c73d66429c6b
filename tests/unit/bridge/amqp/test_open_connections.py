"""Open connections: those without a link, without whole frames, or as old as a day end, and no others."""

from types import SimpleNamespace

import pytest

from bridge.amqp.connections import (
    FRAME_LOOKS,
    LONGEST_SECONDS,
    MOST_ENDS,
    PENDING_SECONDS,
    OpenConnections,
    PendingConnections,
)


@pytest.fixture
def made():
    result = SimpleNamespace(now=0.0, ended=[], renewed=[], used=set())

    def abort(connection, _why):
        result.ended.append(connection.name)

    result.pending = PendingConnections(abort, lambda: result.now)
    result.open = OpenConnections(
        result.pending, abort, lambda connection: result.renewed.append(connection.name), clock=lambda: result.now
    )
    result.look = lambda ends=True: result.open.look(result.used.__contains__, ends=ends)
    return result


def connect(made, number, *, used=True):
    connection = SimpleNamespace(name=number, transport=SimpleNamespace(frames_input=1))
    made.pending.add(number, connection)
    made.open.add(number, connection)
    if used:
        made.pending.remove(number)
        made.used.add(number)
    return connection


def test_one_without_a_link_in_use_is_pending_again(made):
    connect(made, 1)
    connect(made, 2)
    made.used.discard(1)
    made.look()
    made.now += PENDING_SECONDS
    made.look()
    made.pending.expire()
    assert made.ended == [1]


def test_one_that_gets_a_link_again_stays(made):
    connect(made, 1)
    made.used.clear()
    made.look()
    made.used.add(1)
    made.pending.remove(1)
    made.now += 2 * PENDING_SECONDS
    made.look()
    made.pending.expire()
    assert made.ended == []


def test_one_that_never_sends_a_whole_frame_ends(made):
    slow, quick = connect(made, 1), connect(made, 2)
    for _ in range(FRAME_LOOKS + 2):
        quick.transport.frames_input += 1
        made.look()
    assert set(made.ended) == {1}
    slow.transport = None
    made.look()


def test_old_ones_come_again_some_at_a_time_where_there_are_certificates(made):
    for number in range(MOST_ENDS + 1):
        connect(made, number)
    made.now += LONGEST_SECONDS - 1
    connect(made, 99)
    made.look()
    made.now += 1
    made.look(ends=False)
    assert made.renewed == []
    made.look()
    assert made.renewed == list(range(MOST_ENDS))
    for number in made.renewed:
        made.open.remove(number)
    made.look()
    assert made.renewed == list(range(MOST_ENDS + 1))
    assert 99 in made.open
    assert len(made.open) == 2
