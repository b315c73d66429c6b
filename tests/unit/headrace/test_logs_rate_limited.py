"""Log lines that others can cause as often as they like are bounded."""

from headrace.logs import RateLimitedLog


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


def test_what_strangers_cause_is_said_seldom_and_counted():
    said, clock = [], Clock()
    say = RateLimitedLog(lambda text, *values: said.append(text % values), clock)
    for number in range(1000):
        say("from %s", number)
    clock.now += 60
    say("from %s", "elsewhere")
    assert said == ["from 0", "from elsewhere (and 999 others before)"]
