"""Ownership: which sources this bridge has now, each with the lease under which it got them, and the group's metadata.

No socket and no thread. The membership's thread publishes, lanes check at each commit: a transaction names the metadata of the
generation in which all its sources were owned under the leases with which their positions were read. The broker then refuses it
if the generation is over (KIP-447). A source that was lost and assigned again has another lease.
"""

import itertools
import threading
from collections.abc import Collection, Mapping
from typing import NamedTuple

from bridge.model.ports import GroupMetadata
from headrace.errors import Retryable


class NotOwner(Retryable):
    """This bridge does not have some sources of a transaction any more."""

    def __init__(self, sources: Collection[str], why: str) -> None:
        super().__init__(": ".join(filter(None, [", ".join(sorted(sources)[:5]), why])))
        self.sources = frozenset(sources)


class Snapshot(NamedTuple):
    """What is published at one moment; never changed."""

    metadata: GroupMetadata | None
    leases: Mapping[str, int]


class Ownership:
    """The newest snapshot."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._snapshot = Snapshot(None, {})

    @property
    def snapshot(self) -> Snapshot:
        """What was published last."""
        return self._snapshot

    def publish(self, metadata: GroupMetadata | None) -> None:
        """Note the group's metadata; of no use without a generation and a member."""
        if metadata is not None and not metadata.is_usable:
            metadata = None
        with self._lock:
            self._snapshot = Snapshot(metadata, self._snapshot.leases)

    def gain(self, sources: Collection[str], metadata: GroupMetadata | None) -> dict[str, int]:
        """Note that sources are this bridge's; return the lease of each."""
        leases = {source: next(self._numbers) for source in sources}
        with self._lock:
            self._snapshot = Snapshot(self._snapshot.metadata, {**self._snapshot.leases, **leases})
        self.publish(metadata)
        return leases

    def lose(self, sources: Collection[str]) -> None:
        """Note that sources are not this bridge's any more."""
        with self._lock:
            leases = {source: lease for source, lease in self._snapshot.leases.items() if source not in sources}
            self._snapshot = Snapshot(self._snapshot.metadata, leases)

    def metadata_for(self, leases: Mapping[str, int]) -> GroupMetadata:
        """Return the metadata with which these sources may be committed; raise NotOwner when some may not."""
        with self._lock:
            metadata, owned = self._snapshot
        lost = [source for source, lease in leases.items() if owned.get(source) != lease]
        if lost:
            raise NotOwner(lost, "assigned to another bridge")
        if metadata is None:
            raise NotOwner((), "this bridge is not a member of the group at the moment")
        return metadata
