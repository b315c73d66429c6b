"""What goes wrong with bridges, edges, Kafka and the network in a run; which faults go together."""

from collections.abc import Callable, Sequence

from tests.simulation.amqp_router import Router
from tests.simulation.bridges import OTHER_TOPIC, TOPIC, BridgeProcess
from tests.simulation.edges import Edge
from tests.simulation.kafka_broker import PARTS, Broker
from tests.simulation.network import Network
from tests.simulation.operator import Operator
from tests.simulation.scheduler import Scheduler

_FOR_EVER = 10_000.0
_REQUESTS = (
    *("InitProducerId", "AddPartitionsToTxn", "AddOffsetsToTxn", "EndTxn", "TxnOffsetCommit"),
    *("OffsetFetch", "JoinGroup", "Heartbeat", "Produce", "Metadata", "DescribeConfigs", "ListOffsets"),
)
THEMES = (
    ("bridge crash", "bridge pause", "kafka frozen"),
    ("bridge stop", "bridge pause", "bridge crash"),
    ("kafka frozen", "bridge pause", "answers lost"),
    ("kafka frozen", "bridge crash"),
    ("kafka down", "bridge pause"),
    ("bridge pause",),
    ("link closed", "cut", "bridge stop"),
    ("edge double", "cut", "bridge stop"),
    ("call hangs", "bridge pause", "bridge stop"),
    ("pause at request", "bridge crash"),
    ("pause at request", "bridge stop"),
    ("late request", "bridge crash"),
    ("call hangs", "kafka frozen"),
    ("coordinator moves", "bridge crash", "call hangs"),
    ("late request", "bridge pause", "bridge stop"),
    ("source leaves", "bridge crash", "kafka frozen"),
    ("source leaves", "call hangs", "bridge stop"),
    ("no leader",),
    ("no leader", "bridge crash", "bridge stop"),
    ("bridge move",),
    ("bridge move", "bridge crash", "bridge pause"),
    ("bridge move", "kafka frozen", "late request"),
    ("bridge move", "answers lost", "call hangs", "cut"),
)


#: Kinds of faults beside a topic that is deleted.
WITH_DELETED = (
    "topic deleted",
    "bridge pause",
    "bridge crash",
    "bridge stop",
    "kafka frozen",
    "call hangs",
    "coordinator moves",
    "answers lost",
    "cut",
)


class Faults:
    """The faults of one run."""

    def __init__(
        self,
        scheduler: Scheduler,
        network: Network,
        broker: Broker,
        bridges: Sequence[BridgeProcess],
        edges: Sequence[Edge],
        operator: Operator,
    ) -> None:
        self._scheduler, self._network, self._broker = scheduler, network, broker
        self._bridges, self._edges, self._operator = bridges, edges, operator
        self._hang_until = 0.0

    def hangs(self, client: str) -> float:
        """Hang a call of a client, at times for ever where a lane has it."""
        if self._scheduler.now >= self._hang_until or self._scheduler.random.random() >= 0.3:
            return 0.0
        return self._scheduler.random.choice((5.0, 25.0, 45.0, *[_FOR_EVER] * client.startswith("producer ")))

    def _leave(self) -> None:
        """Take a source out of the bridges' files for a while; whoever does that changes one file after the other."""
        random = self._scheduler.random
        given = self._operator.given
        left = {source: given[source] for source in random.sample(sorted(given), len(given) - 1)}
        for sources, seconds in ((left or given, 0.0), (given, random.choice((2.0, 5.0, 15.0)))):
            for each in self._bridges:
                late = seconds + random.random()
                self._scheduler.after(late, lambda each=each, sources=sources: each.give(sources))  # type: ignore[misc]

    def _delete_topic(self) -> None:
        """Delete the topic of a source that is not judged, and make it again."""
        if OTHER_TOPIC in self._broker.topics:
            self._broker.delete(OTHER_TOPIC)
            seconds = self._scheduler.random.choice((0.5, 5.0, 30.0))
            self._scheduler.after(seconds, lambda: self._broker.make(OTHER_TOPIC, 1))

    def _take_leaders(self) -> None:
        """Leave half of the partitions without a leader for a while."""
        random, places = self._scheduler.random, [(TOPIC, *numbers) for numbers in self._operator.given.values()]
        until = self._scheduler.now + random.choice((3, 20, 60))
        self._broker.leaderless_until.update(dict.fromkeys(random.sample(places, (len(places) + 1) // 2), until))

    def _cut(self) -> None:
        """Cut a connection, or only a link of it, where there is a router."""
        if self._scheduler.random.random() < 0.7 or not self._close_link():
            self._network.cut()

    def _close_link(self) -> bool:
        """Have a router close a receiver's link; return whether there is one."""
        router = self._network.at.get("amqp://router")
        if isinstance(router, Router):
            router.close_link()
        return isinstance(router, Router)

    def all(self) -> dict[str, Callable[[], object]]:
        """Return each kind of fault."""
        scheduler, random, broker = self._scheduler, self._scheduler.random, self._broker

        def one() -> BridgeProcess:
            return random.choice(self._bridges)

        def still() -> None:
            parts = PARTS if random.random() < 0.5 else random.sample(PARTS, random.choice((1, 2)))
            broker.stand_still(parts, random.choice((0.5, 4, 9, 15, 25)))

        def down() -> None:
            broker.down_until = scheduler.now + random.choice((1, 8, 8, 60))

        def lose() -> None:
            broker.loss = random.choice((0.02, 0.2))
            scheduler.after(random.choice((2, 15)), lambda: setattr(broker, "loss", 0.0))

        def pause_at() -> None:
            broker.traps[random.choice(_REQUESTS)] = ("pause", random.choice((0.3, 3, 9, 15, 30)))

        def delay_at() -> None:
            broker.traps[random.choice(_REQUESTS)] = ("delay", random.choice((3, 9, 15, 30)))

        def hang() -> None:
            self._hang_until = scheduler.now + random.choice((0.5, 5))

        def move() -> None:
            broker.moved_until[random.choice(("transactions", "group"))] = scheduler.now + random.choice((0.5, 3, 12))

        def edge() -> Edge:
            return random.choice(self._edges)

        return {
            "cut": self._cut,
            "link closed": self._close_link,
            "bridge crash": lambda: one().crash(random.choice((0.5, 5, 20))),
            "bridge stop": lambda: one().stop(),
            "bridge pause": lambda: one().pause(random.choice((0.3, 3, 9, 15, 30))),
            "pause at request": pause_at,
            "late request": delay_at,
            "kafka frozen": still,
            "kafka down": down,
            "answers lost": lose,
            "call hangs": hang,
            "coordinator moves": move,
            "source leaves": self._leave,
            "bridge move": self._operator.move,
            "no leader": self._take_leaders,
            "topic deleted": self._delete_topic,
            "edge crash": lambda: edge().crash(),
            "edge stop": lambda: edge().stop(),
            "edge double": lambda: edge().attach_double(random.choice((0.5, 5, 20))),
        }
