"""Membership in the group of bridges: Kafka's consumer-group assignment says which bridge serves which source.

A source belongs to the member that is assigned the first of its partitions. Nothing is ever fetched. Every bridge is a member;
one alone is a group of one. Called in a loop by a thread of the bridge's.
"""

import logging
import time
from collections.abc import Collection, Mapping

from bridge.group.registry import SourceRegistry
from bridge.kafka.ports import GroupMember, Partition
from headrace.errors import NotConnected, Retryable

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
#: Without an assignment for so long, in seconds, something is wrong with the group.
_LONG_SECONDS = 30.0


class Membership:
    """One bridge's part in the group."""

    def __init__(self, member: GroupMember, sources: Mapping[Partition, str], registry: SourceRegistry) -> None:
        self._member = member
        #: Which source a partition stands for; others stand for none.
        self._sources = sources
        self._registry = registry
        self._trouble = ""
        self._joined = False
        self._since = time.monotonic()
        #: How often this member was assigned partitions, or they were taken from it.
        self.rebalances = 0

    @property
    def state(self) -> str:
        """What keeps this bridge from having sources; empty when nothing does."""
        if self._trouble:
            return self._trouble
        if self._registry.ownership.snapshot.metadata is not None:
            return ""
        waited = time.monotonic() - self._since
        return f"not a member of the group for {waited:.0f} s" if waited > _LONG_SECONDS else ""

    def turn(self) -> None:
        """Take part for a moment; raise InstanceFenced when another process has this instance's name."""
        if not self._joined:
            self._member.join({topic for topic, _ in self._sources}, self._assigned, self._revoked, self._lost)
            self._joined = True
        try:
            self._member.poll(_POLL_SECONDS)
        except (NotConnected, Retryable) as error:
            # The client goes on by itself.
            if error.message != self._trouble:
                _log.warning("%s", error.message)
            self._trouble = error.message
            time.sleep(_POLL_SECONDS)
        else:
            self._trouble = ""
        self._publish()

    @property
    def is_alone(self) -> bool:
        """Whether this bridge has all sources: nobody waits for them."""
        return len(self._registry.ownership.snapshot.leases) == len(self._registry.states)

    def close(self, *, leave: bool) -> None:
        """End the membership; with `leave` the others take over at once, else this instance is expected back."""
        self._member.close(leave=leave)

    def _publish(self) -> None:
        metadata = self._member.metadata()
        self._registry.ownership.publish(metadata)
        if self._registry.ownership.snapshot.metadata is not None:
            self._since = time.monotonic()

    def _assigned(self, partitions: Collection[Partition]) -> None:
        self.rebalances += 1
        self._registry.assigned(self._named(partitions), self._member.metadata())

    def _revoked(self, partitions: Collection[Partition]) -> None:
        self.rebalances += 1
        self._registry.revoked(self._named(partitions))

    def _lost(self, partitions: Collection[Partition]) -> None:
        self.rebalances += 1
        self._registry.lost(self._named(partitions))

    def _named(self, partitions: Collection[Partition]) -> list[str]:
        return [self._sources[place] for place in partitions if place in self._sources]
