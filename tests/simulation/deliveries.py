"""Alerts to branches in a run (docs/deliveries.md): those of each key are counted once and in order by their branch and by no
other, what a branch rejects is a dead letter, and all that is settled is committed.
"""

import json
from collections.abc import Callable
from typing import Any
from zlib import crc32

from tests.simulation.branches import Branch
from tests.simulation.kafka_broker import Broker
from tests.simulation.outcome import FailedRunError, first_difference
from tests.simulation.run_part import RunPart
from tests.simulation.scheduler import Scheduler

_TOPIC, _LETTERS, _GROUP = "alerts", "alerts.dead-letters", "headrace.deliveries.alerts"


class Deliveries(RunPart):
    """The alerts of one run."""

    def __init__(self, scheduler: Scheduler, broker: Broker, urls: list[str], *, until: float, calm_at: float) -> None:
        self._scheduler, self._broker = scheduler, broker
        random = scheduler.random
        self._partitions = random.choice((1, 2, 4))
        broker.make(_TOPIC, self._partitions)
        broker.make(_LETTERS, 1)
        self.branches = [Branch(scheduler, f"r{n}", urls, calm_at=calm_at) for n in range(random.choice((1, 2, 3)))]
        self._keys = [f"{each.region}/k{n}" for each in self.branches for n in range(random.choice((1, 3)))]
        #: The number of each alert that was written, by key; and which of them are rejected, or have no address.
        self.written: dict[str, list[int]] = {key: [] for key in self._keys}
        self._bad: dict[str, str] = {}
        self._left = random.choice((5, 30, 80))
        self._pace = until / self._left
        self._bad_share = random.choice((0.0, 0.1))

    def sections(self) -> dict[str, Any]:
        """Return the delivery."""
        random = self._scheduler.random
        alerts = {
            "address": "alerts/{region}",
            "window": random.choice((1, 3, 64)),
            "max_pending_records": random.choice((2, 10, 10_000)),
        }
        return {"deliveries": {"alerts": alerts}}

    def faults(self) -> dict[str, Callable[[], object]]:
        """Return what may go wrong at branches."""
        return {"branch crash": lambda: self._scheduler.random.choice(self.branches).crash()}

    def themes(self) -> list[tuple[str, ...]]:
        """Return which faults go together."""
        return [
            ("branch crash", "bridge crash", "bridge pause"),
            ("branch crash", "cut", "bridge stop"),
            ("branch crash", "kafka frozen", "late request"),
        ]

    def start(self) -> None:
        """Start the branches, and write alerts."""
        for each in self.branches:
            each.start()
        self._scheduler.after(self._scheduler.random.random(), self._write)

    def _write(self) -> None:
        random = self._scheduler.random
        for _ in range(random.choice((1, 1, 2, 6))):
            key = random.choice(self._keys)
            bad = random.random() < self._bad_share
            numbers = self.written[key]
            value = json.dumps({"key": key, "number": len(numbers), "bad": bad}).encode()
            place = self._produce(key.encode(), value)
            if bad:
                self._bad[place] = "bank:no-such-card"
                numbers.append(-1)
            else:
                numbers.append(len(numbers))
        if random.random() < self._bad_share / 3:
            self._bad[self._produce(None, b"{}")] = "headrace:no-address"
        self._left -= 1
        if self._left > 0:
            self._scheduler.after(random.expovariate(1 / self._pace), self._write)

    def _produce(self, key: bytes | None, value: bytes) -> str:
        number = crc32(key or b"") % self._partitions
        at = int(self._scheduler.wall() * 1000)
        return f"{_TOPIC}/{number}/{self._broker.topics[_TOPIC][number].write(key, value, (), at)}"

    def is_done(self) -> bool:
        """Whether all is settled and committed."""
        return self._left <= 0 and not self._uncommitted() and not self._missing()

    def _missing(self) -> int:
        there = sum(len(each.rows) for each in self.branches)
        return sum(number >= 0 for numbers in self.written.values() for number in numbers) - there

    def _uncommitted(self) -> list[int]:
        offsets = self._broker.group(_GROUP).offsets
        ends = {(_TOPIC, number): log.end for number, log in enumerate(self._broker.topics[_TOPIC])}
        return [at[1] for at, end in ends.items() if end and offsets.get(at, (0, ""))[0] != end]

    def judge(self, *, done: bool) -> None:
        """Compare what was written with what the branches have, and what nobody takes with the dead letters."""
        for each in self.branches:
            foreign = {row.key for row in each.rows if not row.key.startswith(f"{each.region}/")}
            if foreign:
                raise FailedRunError(f"branch {each.region} has alerts of {sorted(foreign)}")
        for key, numbers in self.written.items():
            there = [row.number for each in self.branches for row in each.rows if row.key == key]
            first_difference(f"alerts of {key}", [number for number in numbers if number >= 0], there)
        letters: dict[str, str] = {}
        for _, entry in self._broker.topics[_LETTERS][0].committed():
            headers = {name: value.decode() for name, value in entry.headers}
            letters[headers["headrace.id"]] = headers["headrace.condition"]
        if wrong := {place: why for place, why in letters.items() if self._bad.get(place) != why}:
            raise FailedRunError(f"dead letters that are none: {wrong}")
        self._judge_commits(letters)
        if done and letters != self._bad:
            raise FailedRunError(f"dead letters are missing: {self._bad.keys() - letters.keys()}")

    def _judge_commits(self, letters: dict[str, str]) -> None:
        """Raise FailedRunError where something is committed that nobody has."""
        settled = {row.id for each in self.branches for row in each.rows} | letters.keys()
        for (topic, number), (offset, _) in self._broker.group(_GROUP).offsets.items():
            for each in range(offset):
                if f"{topic}/{number}/{each}" not in settled:
                    raise FailedRunError(f"{topic}[{number}] is committed up to {offset}, and nobody has {each}")

    def shown(self) -> str:
        """Return how far it is."""
        return f"{self._missing()} alerts are missing, and partitions {self._uncommitted()} are not committed"
