"""Kafka as the lanes see it: producers that remember what they were given, and errors queued on them."""

from collections import deque

from bridge.kafka.topics import RecordLimits
from bridge.lanes.lane import Lane, LaneSettings
from bridge.model.ports import Committed, GroupMetadata
from bridge.model.route import SourceRoute
from bridge.source.registry import SourceRegistry

TOPIC = "bank"


def metadata(generation=1):
    return GroupMetadata(b"", "bridges", generation, "member")


class Producer:
    """Implements `TransactionalProducer`; what is queued in `faults` for a method is raised, or called, by its next call."""

    def __init__(self, kafka):
        self.kafka = kafka
        self.open = []

    def is_stale(self):
        return self.kafka.is_stale

    def _fault(self, method):
        faults = self.kafka.faults.get(method)
        if faults and (fault := faults.popleft()) is not None:
            if callable(fault) and not isinstance(fault, type):
                fault(self)
            else:
                raise fault

    def begin(self):
        self._fault("begin")
        self.open = []

    def produce(self, share):
        self._fault("produce")
        self.open.append(share)

    def flush(self, seconds):
        self._fault("flush")
        return {(share.topic, share.partition): len(share.values) for share in self.open}

    def commit(self, positions, group, seconds):
        self._fault("commit")
        self.kafka.transactions.append((self.open, positions, group))

    def abort(self, seconds):
        self._fault("abort")
        self.kafka.aborted += 1

    def discard(self):
        self._fault("discard")
        self.kafka.discarded += 1


class Kafka:
    def __init__(self):
        self.faults = {}
        self.is_stale = False
        self.transactions = []
        self.aborted = self.discarded = 0
        self.opened = []

    def fail(self, method, *faults):
        self.faults.setdefault(method, deque()).extend(faults)

    def open(self, transactional_id):
        producer = Producer(self)
        producer._fault("open")
        self.opened.append(transactional_id)
        return producer

    def values(self, partition):
        return [
            value
            for shares, _, _ in self.transactions
            for share in shares
            if share.partition == partition
            for value in share.values
        ]


class Deliverer:
    """Implements `Deliverer`."""

    def __init__(self):
        self.outcomes = {}
        self.granted = {}
        self.refused = {}

    def settle(self, outcomes):
        self.outcomes |= dict(outcomes)

    def grant(self, session):
        self.granted[session.source] = session

    def revoke(self, session):
        if self.granted.get(session.source) is session:
            del self.granted[session.source]

    def refuse(self, source, condition, description):
        #: What an edge hears.
        self.refused[source] = (condition, description)

    def admit(self, source):
        self.refused.pop(source, None)


class BridgeParts:
    """A registry and lanes over the doubles, for sources that own one partition each."""

    def __init__(self, *sources):
        self.kafka = Kafka()
        self.deliverer = Deliverer()
        self.recovering = {}
        routes = [SourceRoute(source, TOPIC, (number,)) for number, source in enumerate(sources)]
        self.registry = SourceRegistry(routes, self.deliverer, self._recover)
        limits = RecordLimits(None, {}, {TOPIC: 1 << 20})
        # Long enough for a machine that is busy: nothing is waited for.
        settings = LaneSettings("this", transaction_seconds=5.0)
        self.lanes = [
            Lane(name, self.kafka.open, self.registry, self.deliverer, limits, settings, isolated=isolated)
            for name, isolated in (("b.0", False), ("b.isolated", True))
        ]

    def _recover(self, source, lease, seconds):
        self.recovering[source] = (lease, seconds)

    def recover(self, **positions):
        """Begin sessions of all sources that wait for their positions, each at the position that is given or none."""
        waiting, self.recovering = self.recovering, {}
        for source, (lease, _) in waiting.items():
            tail = positions.get(source.replace("/", "_"))
            self.registry.serve(
                source, lease, Committed(tail, "", "", dict.fromkeys(self.registry.states[source].route.places, 0))
            )
        return set(waiting)

    def session(self, source):
        return self.registry.states[source].session
