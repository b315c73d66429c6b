"""A simulated network: what addresses there are, and the wires between two sides.

A wire keeps its order. When it is cut, what was on the way in either direction is gone, and each side learns it in its own time.
"""

from collections.abc import Callable
from typing import Any

from tests.simulation.scheduler import Scheduler


class Network:
    """What addresses there are, and how bad the way to them is."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        #: Who answers at a URL: has `accept(connection)`.
        self.at: dict[str, Any] = {}
        self.latency = (0.0002, 0.01)
        #: How likely a router lets one be overtaken, gives one back as released, or as modified although it arrived.
        self.overtaking = self.releasing = self.modifying = 0.0
        #: How likely a delivery comes in two parts.
        self.splitting = 0.0
        self.wires: list[Wire] = []
        self.unreachable_until = 0.0
        self.sent = 0

    def travel(self) -> float:
        """Return how long the next message takes."""
        least, most = self.latency
        return least + (most - least) * self.scheduler.random.random() ** 2

    def happens(self, likely: float) -> bool:
        """Draw."""
        return bool(likely) and self.scheduler.random.random() < likely

    def splits(self) -> bool:
        """Draw whether a delivery comes in two parts."""
        return self.happens(self.splitting)

    def cut(self) -> None:
        """Cut some connection."""
        alive = [wire for wire in self.wires if wire.alive]
        if alive:
            self.scheduler.random.choice(alive).cut()


class Wire:
    """A connection between two sides; each side is called by what the other one sends, in order."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name = network, name
        self.alive = True
        self._newest = [0.0, 0.0]
        #: Called on each side when it learns that the connection is gone.
        self.on_lost: list[Callable[[], None]] = [lambda: None, lambda: None]
        network.wires = [wire for wire in network.wires if wire.alive]
        network.wires.append(self)

    def send(self, side: int, step: Callable[[], None], *, overtaking: bool = False) -> None:
        """Have a step taken on a side, 0 or 1, after all that were sent there before."""
        network = self.network
        network.sent += 1
        at = network.scheduler.now + network.travel()
        if not (overtaking and network.happens(network.overtaking)):
            at = self._newest[side] = max(at, self._newest[side])
        network.scheduler.after(at - network.scheduler.now, lambda: step() if self.alive else None)

    def cut(self, quiet: int | None = None) -> None:
        """Cut it; the side `quiet`, which has ended itself, gets no event."""
        if not self.alive:
            return
        self.alive = False
        scheduler = self.network.scheduler
        scheduler.trace(f"connection {self.name} is cut")
        for side in (0, 1):
            if side != quiet:
                # A reset is seen at once, a half-open connection after its idle time.
                late = 10.0 if quiet is None and scheduler.random.random() < 0.2 else 0.05
                scheduler.after(scheduler.random.random() * late, self.on_lost[side])
