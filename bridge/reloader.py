"""Takes a changed file over while the bridge runs (SIGHUP): reads it, checks its topics, gives it to all that know sources.

Guarantees that a file which is wrong, whose topics are not ready, or which changes more than sources is logged and left alone,
and that the sources which stay are not touched. Made and called by the bridge.
"""

import logging
from collections.abc import Collection
from typing import Any

from bridge.amqp.receiver import Receiver
from bridge.file_changes import Difference, compare
from bridge.group.membership import Membership
from bridge.kafka.record_limits import RecordLimits
from bridge.kafka.topics import check, names, wanted
from bridge.model.route import SourceRoute, first_places, learn, routes
from bridge.positions.read import Positions
from bridge.source.registry import SourceRegistry
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.errors import ReplicationError

_log = logging.getLogger(__name__)

#: Seconds that Kafka may take to describe the topics; the main thread waits meanwhile.
_PATIENCE = 2.0


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
        self._file = file
        self._admin = admin
        self._limits = limits
        self._positions = positions
        self._registry = registry
        self._receiver = receiver

    def read_again(self, membership: Membership) -> None:
        """Have what changed of the file's sources taken over."""
        try:
            file = load(self._file.path, BridgeFile)
            changed = compare(self._file, file)
            there = names(self._admin, _PATIENCE) if any(file.patterns(stream) for stream in file.streams) else ()
            needed = wanted(file, there)
            self._limits.load(check(self._admin, needed, patience=_PATIENCE), needed)
        except ReplicationError as error:
            _log.error("reload: %s. %s", error.message, error.hint or "The bridge goes on with the former file.")
            return
        known = routes(file)
        learn(known.values(), there)
        self._file = file
        if not changed.anything:
            _log.info("reload: nothing changed in %s", file.path)
            return
        membership.call(lambda: self._take_over(file, changed, known, membership))

    def _take_over(
        self, file: BridgeFile, changed: Difference, known: dict[str, SourceRoute], membership: Membership
    ) -> None:
        """Go on with the file; in the membership's thread, so that the group does not change meanwhile."""
        self._registry.remove(changed.removed)
        for positions in self._positions:
            positions.use(known)
        self._receiver.use(known, file.interconnect)
        self._registry.add(known[source] for source in changed.added)
        membership.use(first_places(known))
        _log.info(
            "reload: took %s over: %d sources added (%s), %d removed (%s)",
            file.path,
            len(changed.added),
            ", ".join(changed.added[:20]) or "none",
            len(changed.removed),
            ", ".join(changed.removed[:20]) or "none",
        )
