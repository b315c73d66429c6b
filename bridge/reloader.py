"""Takes a changed file over while the bridge runs (SIGHUP): reads it, checks its topics, gives it to all that know sources.

Guarantees that a file which is wrong, whose topics are not ready, or which changes more than sources is logged and left alone,
and that the sources which stay are not touched. Made and called by the bridge.

What changed between two versions of a bridge's file, and what of it a running bridge can take over. No socket, no thread.
"""

import logging
from collections.abc import Collection, Iterator
from contextlib import nullcontext
from typing import Any, NamedTuple

from bridge.amqp.receiver import Receiver
from bridge.group.membership import Membership
from bridge.kafka.client import TIMEOUT, Administrator, admin
from bridge.kafka.errors import translated
from bridge.kafka.lifetime import listed, other_addresses
from bridge.kafka.topics import Missing, RecordLimits, check, find_missing, names, wanted
from bridge.model.route import SourceRoute, first_places, learn, routes
from bridge.positions.read import Positions
from bridge.source.registry import SourceRegistry
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import Section, load
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable

Place = tuple[str, ...]


class Difference(NamedTuple):
    """What a running bridge can take over."""

    added: list[str]
    removed: list[str]
    #: Whether anything differs at all.
    anything: bool
    #: Whether Kafka's addresses differ.
    addresses: bool


def compare(old: BridgeFile, new: BridgeFile) -> Difference:
    """Return what is to be taken over; raise NeedsOperator that names each setting which cannot be."""
    before, after = (_sources(file) for file in (old, new))
    moved = {source for source in before.keys() & after.keys() if before[source] != after[source]}
    changed = [".".join(place) for place in _differences(old, new, ()) if not _is_taken_over(place)]
    if moved:
        named = ", ".join(f"{source} ({before[source][1]} before, now {after[source][1]})" for source in sorted(moved))
        raise NeedsOperator(
            f"{new.path} is not taken over: it gives other partitions, or another order of them, to {named}",
            hint="Stop the bridges that share these sources, run 'headrace bridge move SOURCE' for each, and start them. Or put "
            "the former partitions back.",
        )
    if changed:
        raise NeedsOperator(
            f"{new.path} is not taken over, nothing of it: a running bridge cannot change {', '.join(changed)}",
            hint="Put these back and send SIGHUP again, or start the bridge again, which takes the whole file.",
        )
    return Difference(
        sorted(after.keys() - before.keys()),
        sorted(before.keys() - after.keys()),
        any(_differences(old, new, ())),
        set(listed(old.kafka.bootstrap)) != set(listed(new.kafka.bootstrap)),
    )


def _sources(file: BridgeFile) -> dict[str, tuple[str, list[int]]]:
    return {
        source: (name, partitions)
        for name, stream in file.streams.items()
        for source, partitions in stream.sources.items()
    }


def _is_taken_over(place: Place) -> bool:
    return place[:2] in {("interconnect", "identities"), ("kafka", "bootstrap")} or (
        len(place) == 4 and (place[0], place[2]) == ("streams", "sources")
    )


def _differences(old: Any, new: Any, place: Place) -> Iterator[Place]:
    """Yield the names of the settings that differ; never a value, which may be a secret's reference."""
    if isinstance(old, Section) and type(old) is type(new):
        for name in old.__struct_fields__:
            yield from _differences(getattr(old, name), getattr(new, name), (*place, name))
    elif isinstance(old, dict) and isinstance(new, dict):
        for key in sorted(old.keys() | new.keys()):
            if key in old and key in new:
                yield from _differences(old[key], new[key], (*place, key))
            else:
                yield (*place, key)
    elif old != new:
        yield place


_log = logging.getLogger(__name__)

#: Seconds that Kafka may take to describe the topics; the main thread waits meanwhile.
_TIMEOUT = 2.0


class Reloader:
    """The bridge's file as it is in use."""

    def __init__(
        self,
        file: BridgeFile,
        admin: Any,
        limits: RecordLimits,
        positions: Collection[Positions],
        registry: SourceRegistry,
        receiver: Receiver,
    ) -> None:
        self.file = file
        #: By which the addresses are known to all clients of the bridge.
        self._bootstrap = file.kafka.bootstrap
        self._admin = admin
        self._limits = limits
        self._positions = positions
        self._registry = registry
        self._receiver = receiver
        # Why it was tried last and is tried again, as it was logged.
        self._failure = ""

    def read_again(self, membership: Membership) -> bool:
        """Have what changed of the file's sources taken over; return False where it is tried again: Kafka does not answer."""
        try:
            file = load(self.file.path, BridgeFile)
            changed = compare(self.file, file)
            moving = other_addresses(self._bootstrap, file.kafka.bootstrap) if changed.addresses else nullcontext()
            with moving:
                client = self._at_other_addresses(file) if changed.addresses else self._admin
                there = names(client, _TIMEOUT) if any(file.patterns(stream) for stream in file.streams) else ()
                needed, missing = wanted(file, there), Missing()
                limits = check(client, needed, timeout=_TIMEOUT, missing=missing)
                source_routes = routes(file)
                learn(source_routes.values(), there)
                # What the sources that stay have lost is no affair of those that come.
                added = (place for source in changed.added for place in source_routes[source].all_places)
                if (lack := find_missing(missing, added)) is not None:
                    raise lack.error
                self._limits.load(limits, needed, missing)
        except ReplicationError as refusal:
            # Addresses that do not answer may be wrong.
            if isinstance(refusal, NotConnected | Retryable) and file.kafka.bootstrap == self.file.kafka.bootstrap:
                if refusal.message != self._failure:
                    _log.warning("reload: %s. Trying again.", refusal.message)
                self._failure = refusal.message
                return False
            _log.error("reload: %s. %s", refusal.message, refusal.hint or "The bridge goes on with the former file.")
            return True
        self.file = file
        if not changed.anything:
            _log.info("reload: nothing changed in %s", file.path)
            return True
        if changed.addresses:
            _log.info("reload: brokers are looked for at %s from now on", file.kafka.bootstrap)
        membership.call(lambda: self._take_over(file, changed, source_routes, membership))
        return True

    @staticmethod
    def _at_other_addresses(file: BridgeFile) -> Administrator:
        """Return a client that found Kafka at the addresses of a changed file, and nowhere else."""
        client = admin(file.kafka)
        with translated(f"reach Kafka at {file.kafka.bootstrap}", client):
            client.note_brokers(file.first_topic, TIMEOUT)
        return client

    def _take_over(
        self, file: BridgeFile, changed: Difference, source_routes: dict[str, SourceRoute], membership: Membership
    ) -> None:
        """Go on with the file; in the membership's thread, so that the group does not change meanwhile."""
        self._registry.remove(changed.removed)
        for positions in self._positions:
            positions.use(source_routes)
        self._receiver.use(source_routes, file.interconnect)
        self._registry.add(source_routes[source] for source in changed.added)
        membership.use(first_places(source_routes))
        _log.info(
            "reload: took %s over: %d sources added (%s), %d removed (%s)",
            file.path,
            len(changed.added),
            ", ".join(changed.added[:20]) or "none",
            len(changed.removed),
            ", ".join(changed.removed[:20]) or "none",
        )
