"""Branches, which receive alerts as examples/receiver does: each is stored with its id, and accepted after that.

One that is stored and comes again is accepted. A branch may also release an alert, hold it and go away, or die between the two
steps; what it rejects it rejects each time.
"""

import json
from typing import Any, NamedTuple

from proton import Condition, Delivery

from headrace.amqp.links import Arriving, read_sections
from tests.simulation.amqp_loop import Loop
from tests.simulation.scheduler import Process, Scheduler

#: How likely an alert is accepted, released, given back as modified, or held until the connection ends.
_MOODS = {"accept": 0.9, "release": 0.05, "modify": 0.03, "hold": 0.02}


class StoredAlert(NamedTuple):
    """An alert in a branch's database."""

    id: str
    key: str
    number: int


class Branch:
    """One branch, of one region."""

    def __init__(self, scheduler: Scheduler, region: str, urls: list[str], *, calm_at: float) -> None:
        self.scheduler, self.region = scheduler, region
        self.address = f"alerts/{region}"
        self._urls, self._calm_at = urls, calm_at
        self.credit = scheduler.random.choice((1, 4, 20))
        #: Its database: survives whatever happens to the process.
        self.rows: list[StoredAlert] = []
        self.ids: set[str] = set()
        self.rejected: set[str] = set()
        self._process: Process | None = None

    def start(self) -> None:
        """Start to receive, from everybody who may have something."""
        process = self._process = Process(f"branch {self.region}")
        for url in self._urls:
            self.scheduler.spawn(process, f"from {url}", lambda url=url: self._receive(url))  # type: ignore[misc]

    def crash(self) -> None:
        """Kill it; it is started again."""
        if self._process is not None and self._process.alive:
            self.scheduler.kill(self._process)
            self.scheduler.after(self.scheduler.random.choice((0.5, 5.0, 20.0)), self.start)

    def _receive(self, url: str) -> None:
        while True:
            handler = _Attachment(self, url)
            handler.loop.run()
            handler.loop.close()
            self.scheduler.sleep(self.scheduler.random.random() + 0.05)

    def mood(self) -> str:
        """Return what becomes of an alert that is not bad."""
        if self.scheduler.elapsed > self._calm_at:
            return "accept"
        return self.scheduler.random.choices(list(_MOODS), list(_MOODS.values()))[0]

    def store(self, number: str, address: str, body: bytes) -> bool:
        """Store an alert; return False for one that is rejected."""
        alert = json.loads(body)
        if alert["bad"]:
            self.rejected.add(number)
            return False
        assert address == self.address, f"{address} came to {self.address}"
        if number not in self.ids:
            self.ids.add(number)
            self.rows.append(StoredAlert(number, alert["key"], alert["number"]))
        return True


class _Attachment:
    """One connection of a branch, with its link."""

    def __init__(self, branch: Branch, url: str) -> None:
        self._branch, self._url = branch, url
        self._arriving = Arriving(1 << 20)
        self.loop = Loop(self, f"branch {branch.region}")

    def on_begin(self) -> None:
        """Connect and attach."""
        connection = self.loop.connect(self._url)
        self._link = self.loop.attach_receiver(connection, self._branch.address, f"receiver {self._branch.region}")
        self._link.flow(self._branch.credit)

    def on_delivery(self, event: Any) -> None:
        """Store an alert, and accept it a moment later."""
        data = self._arriving.read(event.link, event.delivery)
        if data is None:
            return
        sections, branch = read_sections(data), self._branch
        mood = branch.mood()
        if mood == "hold":
            self.loop.after(branch.scheduler.random.random() * 20, self.loop.stop)
            return
        outcome = {"release": Delivery.RELEASED, "modify": Delivery.MODIFIED}.get(mood, Delivery.ACCEPTED)
        if mood == "accept":
            branch.scheduler.point()
            if not branch.store(sections.id, sections.address, sections.body):  # type: ignore[arg-type]
                outcome = Delivery.REJECTED
                event.delivery.local.condition = Condition("bank:no-such-card", "this branch has no such card")
        self.loop.after(branch.scheduler.random.random() ** 4 * 0.5, lambda: self._settle(event.delivery, outcome))

    def _settle(self, delivery: Any, outcome: int) -> None:
        delivery.update(outcome)
        delivery.settle()
        self._link.flow(1)

    def _over(self, _event: Any) -> None:
        self.loop.stop()

    on_link_remote_close = on_connection_remote_close = on_transport_closed = _over
