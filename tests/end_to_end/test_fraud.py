"""The fraud example as a whole, while its parts are killed: each planted fraud alerts once at its branch, nothing else does.

Two databases, their edges, the bridge with its delivery, Kafka, the stream job and two receivers, as processes.
"""

import importlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from infra.local.stack import Stack
from tests.end_to_end.pipeline import headrace
from tests.end_to_end.supervised import Supervised
from tests.integration.requests.deliveries import letters
from tests.rules.waiting import eventually

EXAMPLE = Path(__file__).parents[2] / "examples" / "fraud"


class Whole:
    """The example's parts, each kept running, and what was planted and accepted."""

    def __init__(self, folder: Path, stack: Stack, example: Callable[[str], Any]) -> None:
        self.stack = stack
        self._generate, self._check = example("generate"), example("check")
        self.bank = example("local").Bank(folder, stack)
        self.bank.prepare(headrace)
        environment = {"TMPDIR": str(folder)}
        self.parts = {
            name: Supervised(name, command, log=folder / f"{name}.log", environment=environment)
            for name, command in self.bank.commands().items()
        }
        self.planted: dict[str, str] = {}
        self.undeliverable: set[str] = set()
        self._rounds = 0

    def write(self, *, seconds: float, rate: float, frauds: int, strikes: Sequence[Callable[[], None]] = ()) -> None:
        """Commit a plan, with faults in the middle, and wait until an alert of it was accepted."""
        plan = self._generate.plan(
            seed=self._rounds, part=self._rounds, seconds=seconds, rate=rate, frauds=frauds, undeliverable=1
        )
        self._rounds += 1
        self.planted |= plan.alerts
        self.undeliverable |= plan.undeliverable.keys()
        writers = self._generate.Writers(plan.rows, self.bank.connect)
        writers.start()
        try:
            if strikes:
                eventually(lambda: len(writers.committed) >= len(plan.rows) // 2 or writers.failures, 120)
            for strike in strikes:
                strike()
            writers.wait()
        finally:
            writers.stop()
        self.wait(lambda: plan.alerts.keys() & {alert.id for alert in self.accepted()}, "an alert is accepted")

    def accepted(self) -> list[Any]:
        """Return what both branches accepted."""
        return [alert for region in self.bank.connect for alert in self._check.accepted(self.bank.database(region))]

    def verdict(self) -> Any:
        """Compare what was accepted with what was planted."""
        return self._check.check(self.planted, self.accepted())

    def wait(self, condition: Callable[[], Any], saying: str, seconds: float = 240) -> None:
        """Wait for a condition; fail with what the parts wrote last."""

        def holds() -> Any:
            for part in self.parts.values():
                part.check()
            return condition()

        try:
            eventually(holds, seconds, saying=saying)
        except AssertionError as error:
            tails = "\n".join(f"--- {name}\n{part.tail(12)}" for name, part in self.parts.items())
            raise AssertionError(f"{error}\n{tails}") from None

    def kill_broker(self) -> None:
        """Kill Kafka, and start it again."""
        self.stack.kafka.kill()
        self.stack.kafka.start()


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Return a function that imports a module of the example."""
    monkeypatch.syspath_prepend(EXAMPLE)
    yield importlib.import_module
    for name in ("rule", "generate", "check", "local"):
        sys.modules.pop(name, None)


@pytest.fixture
def whole(tmp_path_factory: pytest.TempPathFactory, example: Callable[[str], Any]) -> Iterator[Whole]:
    """Yield the example with all of its parts started."""
    folder = tmp_path_factory.mktemp("fraud")
    stack = Stack(folder / "servers", postgres=["jakarta"], mariadb=["singapore"])
    try:
        stack.start()
        made = Whole(folder, stack, example)
        try:
            for part in made.parts.values():
                part.start()
            yield made
        finally:
            # The receivers first: a bridge waits for what they have.
            for part in reversed(made.parts.values()):
                part.stop_at_once()
    finally:
        stack.delete()


@pytest.mark.long
def test_each_fraud_alerts_once_at_its_branch_while_job_bridge_broker_and_receivers_are_killed(whole: Whole) -> None:
    bridge, branch, job = (whole.parts[name].kill for name in ("bridge", "branch-jakarta", "job"))
    whole.write(seconds=4, rate=30, frauds=5)
    for strikes in ((bridge, branch), (whole.kill_broker, job)):
        whole.write(seconds=3, rate=40, frauds=5, strikes=strikes)

    each_once(whole)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_each_fraud_alerts_once_at_its_branch_whatever_is_killed_again_and_again(whole: Whole) -> None:
    whole.write(seconds=10, rate=100, frauds=20)
    for name in ("edge-jakarta", "job", "bridge", "branch-jakarta", "kafka", "edge-singapore", "job", "kafka") * 2:
        strike = whole.kill_broker if name == "kafka" else whole.parts[name].kill
        whole.write(seconds=10, rate=100, frauds=20, strikes=[strike])

    each_once(whole)


def each_once(whole: Whole) -> None:
    whole.wait(lambda: whole.planted.keys() <= {alert.id for alert in whole.accepted()}, "no fraud is missed")
    bootstrap = whole.stack.kafka.bootstrap
    whole.wait(lambda: dead(bootstrap) >= whole.undeliverable, "cards without a branch become dead letters")

    assert whole.verdict() == ([], [], [])
    assert dead(bootstrap) == whole.undeliverable
    for alert in whole.accepted():
        assert alert.branch.startswith(tuple(f"{region}/branch-" for region in whole.bank.connect))


def dead(bootstrap: str) -> set[str]:
    """Return the ids of the alerts that had no address."""
    result = letters(bootstrap, "alerts.dead-letters")
    assert {letter["headrace.condition"] for letter in result} <= {"headrace:no-address"}
    return {json.loads(letter["value"])["id"] for letter in result}
