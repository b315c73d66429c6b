"""A model of all that withholding touches: Kafka in memory, a registry that refuses, an edge; the bridge's own parts over them.

Deliveries reach the bridge as their edge would send them: in order, from the committed position on, cut anywhere. Faults are
those of a transaction: it fails, or its outcome is not known, whichever it was; and the bridge ends in the middle of one.
"""

import json
import random
from collections import defaultdict

from bridge.kafka.topics import RecordLimits
from bridge.lanes.lane import Lane, LaneSettings
from bridge.model.chain import Withheld, parse
from bridge.model.delivery import Accept, Delivery
from bridge.model.ports import Committed
from bridge.model.route import SourceRoute, TableRouter
from bridge.routing import withheld_records as records
from bridge.routing.registered_schemas import Ids
from bridge.source.registry import SourceRegistry
from bridge.withheld.releaser import Releaser, WithheldRecord
from headrace.batch import CONTENT_ENCODING, Batch, WrittenWith, encode
from headrace.configuration.bridge import TableTopic
from headrace.errors import NotConnected, Retryable
from headrace.position import Position
from headrace.registry.client import Incompatible
from tests.unit.bridge.kafka_double import Deliverer, metadata

SOURCE, OWN, WITHHELD, EPOCH = "a/b", "s", "s.withheld", 1
TABLES = ("t", "u", "v")
_MEANWHILE = 0.2


class Broker:
    """Partitions of records, of which None is a marker; what a group committed; and faults, chosen by `chance`."""

    def __init__(self, chance: random.Random, faults: float) -> None:
        self.chance, self.faults = chance, faults
        self.logs: dict[tuple[str, int], list] = defaultdict(list)
        self.text = ""
        self.starts: dict[tuple[str, int], int] = defaultdict(int)
        #: What other threads do in the middle of a transaction.
        self.meanwhile = lambda: None

    def values(self, topic: str) -> list[tuple]:
        return [
            each for (name, _), log in sorted(self.logs.items()) if name == topic for each in log if each is not None
        ]

    def open(self, _transactional_id: str) -> "Producer":
        return Producer(self)


class Killed(BaseException):
    """The bridge ends here."""


class Producer:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.shares, self.at = [], {}

    def is_stale(self):
        return False

    def begin(self):
        self.shares, self.at = [], {}

    def produce(self, share):
        self.shares.append(share)
        self.broker.meanwhile()

    def flush(self, seconds):
        self.broker.meanwhile()
        self._fail("flush")
        self.ends, self.at = {}, {}
        for share in self.shares:
            place = (share.topic, share.partition)
            log = self.broker.logs[place]
            headers = share.headers or {}
            self.at.setdefault(place, len(log))
            log.extend(
                (key, value, headers.get(n))
                for n, (key, value) in enumerate(zip(share.keys, share.values, strict=True))
            )
            self.ends[place] = len(log)
        try:
            self._die()
        except Killed:
            # Whoever comes next aborts it.
            self.abort(0)
            raise
        return self.ends

    def commit(self, positions, group, seconds):
        self._fail("commit")
        self.broker.text = positions[0].metadata
        assert len({each.metadata for each in positions}) == 1
        self._marked()
        if self.broker.chance.random() < self.broker.faults:
            raise NotConnected("the answer to a commit was lost")
        self._die()

    def _die(self):
        if self.broker.chance.random() < self.broker.faults / 2:
            raise Killed

    def abort(self, seconds):
        for place, begin in self.at.items():
            # Offsets are not given back.
            log = self.broker.logs[place]
            log[begin:] = [None] * (len(log) - begin)
        self._marked()

    def discard(self):
        if self.at:
            self.abort(0)

    def _marked(self):
        for place in self.at:
            self.broker.logs[place].append(None)
        self.shares, self.at = [], {}

    def _fail(self, step):
        if self.broker.chance.random() < self.broker.faults:
            raise Retryable(f"{step} failed")


class Registry:
    """Refuses schemas by what they are."""

    def __init__(self) -> None:
        self.refused: set[str] = set()
        self.asked: list[str] = []

    def ids(self, needed, _until=0.0):
        self.asked.append(needed.schemas.value)
        if needed.schemas.value in self.refused:
            raise Incompatible(f"{needed.value_subject} is refused", hint="Allow it.")
        number = int(json.loads(needed.schemas.value)["number"])
        return Ids(number, number)


class Reader:
    """Implements `ReadsWithheld` over the broker."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker

    def read(self, place, key, begin, end, *, most=200):
        if self.broker.chance.random() < self.broker.faults:
            raise NotConnected("withheld records could not be read")
        assert begin >= self.broker.starts[place], "what is needed is deleted"
        results, size = [], 0
        for offset in range(begin, end):
            record = self.broker.logs[place][offset]
            if record is not None and record[0] == key:
                results.append(WithheldRecord(offset, records.batch_of(record[2], record[1], "here"), len(record[1])))
                size += len(record[1])
                if size >= most:
                    return results, offset + 1
        return results, end

    def delete(self, place, end):
        self.broker.starts[place] = max(end, self.broker.starts[place])

    def close(self):
        pass


class Change:
    """One record of the source's log."""

    def __init__(self, position, table, number, key) -> None:
        self.position, self.table, self.number, self.key = position, table, number, key

    @property
    def payload(self) -> bytes:
        return str(self.position).encode()


def schema_of(table: str, number: int) -> WrittenWith:
    return WrittenWith(
        number, "public", table, json.dumps({"number": number}), json.dumps({"number": number, "table": table})
    )


def log(chance: random.Random, count: int, altered: float) -> list[Change]:
    """Return changes of three tables, whose schemas are altered now and then; numbers name schemas."""
    numbers = {table: 10 * (place + 1) for place, table in enumerate(TABLES)}
    changes, commit = [], 100
    while len(changes) < count:
        commit += chance.randint(1, 9)
        for ordinal in range(chance.randint(1, 6)):
            table = chance.choice(TABLES)
            if chance.random() < altered:
                numbers[table] = (numbers[table] // 100 + 1) * 100 + numbers[table] % 100
            changes.append(Change(Position(EPOCH, commit, ordinal), table, numbers[table], chance.randint(1, 9)))
    return changes


def batch(changes: list[Change], follows: Position) -> Batch:
    """Return changes as an edge cuts them, with a record in JSON that belongs to no table at the end."""
    segments, keys, values = [], [], []
    for change in changes:
        head = b"\0" + change.number.to_bytes(4, "big")
        segments.append((change.position.commit, change.position.ordinal, 1))
        keys.append(head + b"%d" % change.key)
        values.append(head + change.payload)
    numbers = {change.number: change.table for change in changes}
    return Batch(
        source=SOURCE, follows=follows, first=changes[0].position, last=changes[-1].position, segments=segments, keys=keys,
        values=values, written=[schema_of(table, number) for number, table in numbers.items()],
    )  # fmt: skip


class Bridge:
    """One life of a bridge: its registry, lane and releaser."""

    def __init__(self, broker: Broker, schemas: Registry, partitions: tuple[int, ...]) -> None:
        topics = {f"public.{table}": TableTopic(f"s.public.{table}", "delete") for table in TABLES}
        route = SourceRoute(SOURCE, OWN, partitions, TableRouter(OWN, topics), "s", "", WITHHELD)
        self.broker, self.deliverer, self.waiting = broker, Deliverer(), {}
        self.registry = SourceRegistry(
            [route], self.deliverer, lambda source, lease, _: self.waiting.update({source: lease})
        )
        self.registry.schemas = schemas
        settings = LaneSettings("bridge", transaction_seconds=5.0)
        limits = RecordLimits(None, {})
        self.lanes = [
            Lane(name, broker.open, self.registry, self.deliverer, limits, settings, isolated=isolated)
            for name, isolated in (("b.0", False), ("b.isolated", True))
        ]
        for lane in self.lanes:
            lane._backoff.pause = lambda: 0.0
            lane._pacing.gather = lane._pacing.wait_for_end = lambda: None
        self.now = 0.0
        self.releaser = Releaser(self.registry, schemas, Reader(broker), lambda: self.now)
        self.state = self.registry.states[SOURCE]
        broker.meanwhile = lambda: self.release() if broker.chance.random() < _MEANWHILE else None
        self.registry.assigned([SOURCE], metadata())

    def recover(self) -> None:
        """Begin a session, if one waits, at what is committed."""
        for source, lease in [*self.waiting.items()]:
            del self.waiting[source]
            result = parse(self.broker.text) if self.broker.text else None
            position = result.position if result else None
            withheld = (result.withheld if result else None) or Withheld(0)
            self.registry.serve(
                source, lease, Committed(position, "", "", dict.fromkeys(self.state.route.places, 0), withheld)
            )

    def turn(self) -> None:
        self.recover()
        for lane in self.lanes:
            lane.turn(0)

    def release(self) -> None:
        self.now += 10
        self.releaser.turn(0)


class Edge:
    """Sends its log from the committed position on, and goes back there with each session."""

    def __init__(self, changes: list[Change], chance: random.Random) -> None:
        self.changes, self.chance = changes, chance
        self.session, self.at, self.ticket = None, 0, 0
        self.follows = Position.start(EPOCH)

    def send(self, bridge: Bridge, upto: int) -> bool:
        """Send the next batch, at most up to a change; return whether there was one."""
        session = bridge.state.session
        if session is None:
            return False
        if session is not self.session:
            self.session = session
            begin = next(
                (n for n, each in enumerate(self.changes) if session.tail is None or each.position > session.tail),
                len(self.changes),
            )
            # It may go back further than it has to.
            self.at = max(0, begin - self.chance.randint(0, 5))
            self.follows = self.changes[self.at - 1].position if self.at else Position.start(EPOCH)
        part = self.changes[self.at : min(upto, self.at + self.chance.randint(1, 8))]
        if not part:
            return False
        properties, body = encode(batch(part, self.follows))
        self.ticket += 1
        session.inbox.put(Delivery(self.ticket, 1, properties, CONTENT_ENCODING, body))
        self.follows, self.at = part[-1].position, self.at + len(part)
        return True


def accepted(bridge: Bridge) -> int:
    return sum(isinstance(outcome, Accept) for outcome in bridge.deliverer.outcomes.values())
