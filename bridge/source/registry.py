"""The registry of sources: what each assignment, revocation, failure and recovery means for a source and its session.

No socket and no thread of its own: the membership's thread assigns and revokes, the recovery's thread begins sessions, lanes
report failures. A session ends with the first error or with its lease, and what waits in it goes back to the edge.

Ownership: which sources this bridge has now, each with the lease under which it got them, and the group's metadata.

No socket and no thread. The membership's thread publishes, lanes check at each commit: a transaction names the metadata of the
generation in which all its sources were owned under the leases with which their positions were read. The broker then refuses it
if the generation is over (KIP-447). A source that was lost and assigned again has another lease.
"""

import itertools
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from bridge.model.delivery import Deliverer, Outcome, Release
from bridge.model.phases import SourcePhase
from bridge.model.ports import Committed, GroupMetadata
from bridge.model.route import SourceRoute
from bridge.routing.registered_schemas import BridgeSchemas, Unregistered
from bridge.source.session import ReadyQueue, Session
from bridge.source.state import SourceState
from headrace.errors import ReplicationError, Retryable


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


_log = logging.getLogger(__name__)

#: What an edge gets whose source another bridge serves: it tries its next address.
ELSEWHERE = "amqp:link:redirect"
#: Reason shown for a source that the group gave to others because this bridge was not heard.
DROPPED = (
    "the group of bridges has not heard this bridge in time; it joins again, and another bridge may have the source"
)
#: Reason shown for a source that the group gave to no bridge, and what to do.
NOT_SERVED = "no bridge of the group has it"
NOT_SERVED_HINT = (
    "Its stream's topic, or the first of its partitions, is not in Kafka: 'headrace bridge topics' shows it, 'headrace bridge "
    "init' makes it."
)
#: How long revoked sources may take to finish their transaction, in seconds.
FINISH_SECONDS = 3.0


class SourceRegistry:
    """Every source of one bridge's file."""

    def __init__(
        self, routes: Iterable[SourceRoute], deliverer: Deliverer, recover: Callable[[str, int, float], None]
    ) -> None:
        self.states = {route.source: SourceState(route) for route in routes}
        self.ownership = Ownership()
        self.ready = ReadyQueue()
        #: The ids of the schemas of records in Avro.
        self.schemas: BridgeSchemas = Unregistered()
        self._deliverer = deliverer
        #: Has the position of a source read, for a lease, after some seconds.
        self._recover = recover
        self._lock = threading.RLock()
        # Sources that left the file, with the sessions that a lane may still hold.
        self._leaving: dict[str, list[Session]] = {}
        # Before the first assignment, and the first one after the group dropped this bridge, it is not known who has the others.
        self._is_assigned = False

    def __contains__(self, source: object) -> bool:
        """Whether the bridge's file has a source; for any thread."""
        return source in self.states

    # The membership's thread.

    def assigned(self, sources: Collection[str], metadata: GroupMetadata | None) -> None:
        """Have sources served that this bridge got."""
        with self._lock:
            for source, lease in self.ownership.gain(sources, metadata).items():
                self.states[source].begin(lease)
                self._deliverer.admit(source)
                self._recover(source, lease, 0.0)
            if not self._is_assigned:
                self._is_assigned = True
                for source, state in self.states.items():
                    if state.token is None:
                        self._decline(source)
        _log.info("%d sources are assigned to this bridge: %s", len(sources), ", ".join(sorted(sources)[:20]) or "none")

    def revoked(self, sources: Collection[str], seconds: float = FINISH_SECONDS) -> None:
        """Give sources up: their transactions are finished or aborted within `seconds`."""
        sessions = self._close(sources, revoke=True)
        if not self.ready.wait_returned(sessions, seconds):
            _log.warning("a transaction did not end in time; what was not committed is sent again")
        self._give_up(sources, sessions)

    def lost(self, sources: Collection[str]) -> None:
        """Drop sources that another bridge may have, until the group admits this bridge again and assigns them."""
        self.ownership.lose(sources)
        sessions = self._close(sources, revoke=True)
        with self._lock:
            self._release(sessions)
            self._is_assigned = False
            for source in sources:
                self.states[source].drop(DROPPED)
                self._deliverer.refuse(source, ELSEWHERE, f"{source} may be served by another bridge")
        if sources:
            _log.warning("%d sources were taken from this bridge: it was not heard in time", len(sources))

    def add(self, routes: Iterable[SourceRoute]) -> None:
        """Take on sources that came into the file; they are another bridge's until they are assigned to this one."""
        with self._lock:
            fresh = {route.source: SourceState(route) for route in routes}
            # Never changed in place: other threads go through it.
            self.states = self.states | fresh
            for source in fresh:
                self._leaving.pop(source, None)
                if self._is_assigned:
                    self._decline(source)

    def remove(self, sources: Collection[str]) -> None:
        """End sources that left the file: their transactions are finished or aborted."""
        sessions = self._close(sources, revoke=True)
        self.ready.wait_returned(sessions, FINISH_SECONDS)
        self._give_up(sources, sessions)
        with self._lock:
            self._leaving |= {source: [each for each in sessions if each.source == source] for source in sources}
        self.sweep()

    def sweep(self) -> None:
        """Forget the sources that left the file and of which no lane holds a transaction any more."""
        with self._lock:
            over = {source for source, sessions in self._leaving.items() if not any(each.held for each in sessions)}
            if over:
                self.states = {source: state for source, state in self.states.items() if source not in over}
                self._leaving = {source: held for source, held in self._leaving.items() if source not in over}

    def stop(self, seconds: float) -> None:
        """End all sessions: open transactions are finished within `seconds`."""
        sources = list(self.states)
        sessions = self._close(sources, revoke=True)
        self.ready.wait_returned(sessions, seconds)
        self.ownership.lose(sources)
        self._release(sessions)
        for state in self.states.values():
            if state.token is not None:
                state.end(SourcePhase.STOPPED)

    # The recovery's thread.

    def serve(self, source: str, lease: int, committed: Committed) -> None:
        """Begin a session at the position that was read for a lease, if the source is still this bridge's under it."""
        with self._lock:
            state = self.states.get(source)
            if state is None or state.token != lease or state.session is not None:
                return
            session = Session(source, lease, committed, self.ready.notify, isolated=state.isolated)
            session.looks_first = state.needs_records and bool(session.withheld.tables)
            state.serve(session)
            self._deliverer.grant(session)
        self.ready.notify(session)

    def unreadable(self, source: str, lease: int, error: ReplicationError) -> None:
        """Note that the position of a source could not be read, and have it read again."""
        with self._lock:
            state = self.states.get(source)
            if state is not None and state.token == lease:
                state.note_unread(error)
                self._recover(source, lease, state.pause(error))

    # Lanes.

    def failed(
        self, session: Session, error: ReplicationError, *, isolate: bool = False, rest: bool = False
    ) -> tuple[str, int, float] | None:
        """End a session after an error; return what `recover` takes once the transaction is known to be over.

        Args:
            session: one that a lane holds.
            error: what went wrong.
            isolate: whether it may be this source that could not be written: its next transaction holds nothing else.
            rest: whether it was this source: the next attempt is made after a pause.
        """
        with self._lock:
            if not self._end(session):
                return None
            state = self.states[session.source]
            state.isolated = isolate
            state.set_back(error, quiet=not isolate and not rest)
            return session.source, session.token, state.pause(error, at_once=not rest)

    def recover(self, waiting: Iterable[tuple[str, int, float]]) -> None:
        """Have positions read again, of sources whose sessions failed."""
        for source, lease, pause in waiting:
            if source in self.states:
                self._recover(source, lease, pause)

    def recommit(self, seconds: float) -> None:
        """Have positions committed again that were not for some seconds: Kafka forgets old offsets."""
        until = time.monotonic() - seconds
        for state in self.states.values():
            session = state.session
            if session is not None and session.committed_at < until and not session.dirty:
                session.dirty = True
                self.ready.notify(session)

    def go_on_without_releases(self) -> None:
        """Have deliveries taken of sources that release tables, or wait for that: the releaser does not return."""
        for state in self.states.values():
            session = state.session
            if session is not None and (session.looks_first or session.release.table):
                session.looks_first = False
                session.release.end()
                self.ready.notify(session)

    def _close(self, sources: Collection[str], *, revoke: bool) -> list[Session]:
        """Have lanes take nothing more of sources; return the sessions that there were."""
        with self._lock:
            sessions = [session for source in sources if (session := self.states[source].session) is not None]
        for session in sessions:
            if revoke:
                self._deliverer.revoke(session)
            self.ready.close(session)
        return sessions

    def _give_up(self, sources: Collection[str], sessions: Collection[Session]) -> None:
        self.ownership.lose(sources)
        with self._lock:
            self._release(sessions)
            for source in sources:
                self._decline(source)

    def unserved(self, sources: Collection[str]) -> None:
        """Show which sources no bridge of the group has; those that are another's again are shown as before."""
        with self._lock:
            for source, state in self.states.items():
                is_shown = state.figures.state is SourcePhase.NOT_SERVED
                if source in sources and state.token is None and not is_shown:
                    _log.error("%s: %s. %s", source, NOT_SERVED, NOT_SERVED_HINT)
                    state.end(SourcePhase.NOT_SERVED, NOT_SERVED)
                    self._deliverer.refuse(source, ELSEWHERE, f"{source}: {NOT_SERVED}")
                elif is_shown and source not in sources and state.token is None:
                    self._decline(source)

    def _decline(self, source: str) -> None:
        self.states[source].end(SourcePhase.ELSEWHERE)
        self._deliverer.refuse(source, ELSEWHERE, f"{source} is served by another bridge")

    def _end(self, session: Session) -> bool:
        """End one session; return whether the source is still this bridge's under its lease."""
        self._deliverer.revoke(session)
        self.ready.close(session)
        self._release([session])
        return self.states[session.source].token == session.token

    def _release(self, sessions: Collection[Session]) -> None:
        """Send back what waits in sessions that are over."""
        for session in sessions:
            state = self.states[session.source]
            if state.session is session:
                state.session = None
            waiting: list[tuple[int, Outcome]] = [(delivery.ticket, Release()) for delivery in session.inbox.clear()]
            state.figures.released += len(waiting)
            self._deliverer.settle(waiting)
