"""Strangers at the bridge's door."""

from bridge.guests import MOST, SECONDS, Guests, Seldom


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_who_becomes_no_edge_in_time_is_sent_off():
    sent, clock = [], Clock()
    guests = Guests(lambda guest, _reason: sent.append(guest), clock)
    guests.came(1, "one")
    clock.now += SECONDS / 2
    guests.came(2, "two")
    guests.came(3, "three")
    guests.left(3)
    clock.now += SECONDS / 2
    guests.tidy()
    assert sent == ["one"]
    clock.now += SECONDS
    guests.tidy()
    assert sent == ["one", "two"]
    assert len(guests) == 0


def test_of_too_many_the_oldest_leaves():
    sent = []
    guests = Guests(lambda guest, _reason: sent.append(guest), Clock())
    for number in range(MOST + 3):
        guests.came(number, number)
    assert sent == [0, 1, 2]
    assert len(guests) == MOST


def test_what_strangers_cause_is_said_seldom_and_counted():
    said, clock = [], Clock()
    say = Seldom(lambda text, *values: said.append(text % values), clock)
    for number in range(1000):
        say("from %s", number)
    clock.now += 60
    say("from %s", "elsewhere")
    assert said == ["from 0", "from elsewhere (and 999 others before)"]
