"""Membership in the group of bridges: Kafka's consumer-group assignment decides which bridge serves which source, from which
position.

A source belongs to the member that is assigned the first of its partitions. Nothing is ever fetched. Every bridge is a member;
one alone is a group of one. Called in a loop by a thread of the bridge's.

`Recovery` reads the committed positions of sources that begin or begin again, all that wait in one request. What an open
transaction of a former owner may still change is not read before that ends. A source whose position has to be searched for, in
its records, goes to a second recovery, and holds up no other. No thread of its own: the bridge has one for each of them that
calls `turn`.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from itertools import islice

from bridge.kafka.lifetime import Lifetime
from bridge.model.ports import Committed, GroupMember, InstanceFenced, Partition, PositionReader
from bridge.source.registry import SourceRegistry
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.waiting import Backoff

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
#: Seconds without an assignment after which something is wrong with the group.
_LONG_SECONDS = 30.0
#: A number of changes of the group within some seconds that shows members which come and go without end.
_OFTEN, _OFTEN_SECONDS = 20, 60.0
#: Seconds after the first assignment until the check whether each source that this bridge did not get has another bridge, and
#: until it is repeated where that was not known; and between later checks.
_LOOK_SECONDS, _LOOK_AGAIN_SECONDS = 1.0, 30.0
#: The same after sources came into the file: the group's leader has to notice first.
_GROWN_SECONDS = 5.0
#: Seconds after the end of a session until Kafka has certainly removed a member that is not heard.
_MARGIN_SECONDS = 2.0
#: At how many looks, each after a session, another member of this instance's name has to be there: a broker that begins to lead
#: the group gives every member its whole session again, one of which nothing is left included.
_LOOKS = 3
#: Most sources of one request: the first ones are served while the next are read.
_MOST = 250


class Membership:
    """One bridge's part in the group."""

    def __init__(
        self,
        member: GroupMember,
        sources: Mapping[Partition, str],
        registry: SourceRegistry,
        session_seconds: float,
        lifetime: Lifetime,
    ) -> None:
        self._member = member
        self._session_seconds = session_seconds
        #: The source of each partition that is the first one of a source.
        self._sources = sources
        self._registry = registry
        self._trouble = ""
        self._joined = False
        self._since = time.monotonic()
        #: When to look whether all sources have a member; None where there is no need.
        self._look_at: float | None = None
        self._looked = False
        # Those for which the group was joined again, and which still have no bridge.
        self._unserved: set[str] = set()
        #: What was raised when another member took this instance's place, and when; None while none did.
        self._fenced: InstanceFenced | None = None
        self._look_for_other_at = 0.0
        self._looks = 0
        #: That of the member's client.
        self._lifetime = lifetime
        # The partitions that this member has, those included that are of no source.
        self._places: set[Partition] = set()
        # What other threads ask for, to be done in this one's turn.
        self._commands: deque[Callable[[], None]] = deque()
        # When this member was last assigned partitions, or they were taken from it.
        self._changes: deque[float] = deque(maxlen=_OFTEN)

    @property
    def state(self) -> str:
        """What keeps this bridge from having sources; empty when nothing does."""
        if self._trouble:
            return self._trouble
        if self._registry.ownership.snapshot.metadata is not None:
            since = time.monotonic() - _OFTEN_SECONDS
            often = sum(at > since for at in self._changes)
            return f"the group of bridges changed {often} times in the last minute" if often >= _OFTEN else ""
        waited = time.monotonic() - self._since
        return f"not a member of the group for {waited:.0f} s" if waited > _LONG_SECONDS else ""

    def call(self, command: Callable[[], None]) -> None:
        """Have a command done in the membership's thread, between two changes of the group."""
        self._commands.append(command)

    def use(self, sources: Mapping[Partition, str]) -> None:
        """Go on with the sources of a changed file: those are taken on whose partitions this member has."""
        fresh = set(sources.values()) - set(self._sources.values())
        self._sources = sources
        if own_sources := [sources[place] for place in self._places & sources.keys() if sources[place] in fresh]:
            self._registry.assigned(own_sources, self._member.metadata())
        if fresh:
            self.look_at_topics()

    def look_at_topics(self) -> None:
        """Have partitions assigned that came into topics, which may have no member yet."""
        # Joining again, if that is not enough, interrupts all.
        try:
            self._member.look()
        except (NotConnected, Retryable, NeedsOperator) as error:
            _log.debug("%s", error.message)
        self._look_at = time.monotonic() + _GROWN_SECONDS

    def turn(self) -> None:
        """Take part for a moment; raise InstanceFenced when another process has this instance's name and stays."""
        while self._commands:
            self._commands.popleft()()
        self._registry.sweep()
        if self._fenced is not None:
            self._wait_for_other(self._fenced)
            return
        if self._lifetime.is_over():
            self._renew_client()
        if not self._joined:
            self._member.join({topic for topic, _ in self._sources}, self._assigned, self._revoked, self._lost)
            self._joined = True
        try:
            self._member.poll(_POLL_SECONDS)
        except InstanceFenced as error:
            self._leave_place(error)
            return
        except (NotConnected, Retryable) as error:
            # The client goes on by itself.
            if error.message != self._trouble:
                _log.warning("%s", error.message)
            self._trouble = error.message
            time.sleep(_POLL_SECONDS)
        else:
            self._trouble = ""
        self._publish()
        if self._look_at is not None and time.monotonic() >= self._look_at:
            self._look()

    @property
    def is_alone(self) -> bool:
        """Whether this bridge has all sources: no other one waits for them."""
        return len(self._registry.ownership.snapshot.leases) == len(self._registry.states)

    def close(self, *, leave: bool) -> None:
        """End the membership; with `leave` the others take over at once, else this instance is expected back."""
        self._member.close(leave=leave)

    def _leave_place(self, error: InstanceFenced) -> None:
        """Give everything up: another member of this instance's name has joined.

        That may be a process of which nothing is left but a late request, such as this bridge's own before it was started again.
        """
        _log.warning("%s; waiting whether it is heard again", error.message)
        self._fenced, self._looks, self._trouble = error, 0, error.message
        self._wait_for_session()
        self._registry.lost(list(self._registry.ownership.snapshot.leases))
        self._registry.ownership.publish(None)
        self._places.clear()

    def _wait_for_other(self, error: InstanceFenced) -> None:
        """Join again once the other member is not heard for a session; raise InstanceFenced when it is."""
        if time.monotonic() < self._look_for_other_at:
            time.sleep(_POLL_SECONDS)
            return
        try:
            is_there = self._member.is_known()
        except (NotConnected, Retryable, NeedsOperator) as failed:
            _log.debug("%s", failed.message)
            time.sleep(_POLL_SECONDS)
            return
        if is_there:
            self._looks += 1
            if self._looks == _LOOKS:
                raise error
            self._wait_for_session()
            return
        _log.info(
            "the other member of this instance's name was not heard for %s s: joining again", self._session_seconds
        )
        self._member.reset()
        self._joined, self._fenced, self._trouble = False, None, ""

    def _wait_for_session(self) -> None:
        self._look_for_other_at = time.monotonic() + self._session_seconds + _MARGIN_SECONDS

    def _look(self) -> None:
        """Join again where no member has a source of this bridge's file, and show those that none has after that.

        Kafka gives a static member that returns within its session what it had before, and makes no assignment: it does
        not have the topics and partitions that came into its file since.
        """
        others = [place for place, source in self._sources.items() if self._registry.states[source].token is None]
        self._look_at = time.monotonic() + _LOOK_SECONDS
        try:
            forgotten = self._member.unassigned(others) if others else set()
        except (NotConnected, Retryable, NeedsOperator) as error:
            _log.debug("%s", error.message)
            return
        if forgotten is None:
            return
        self._look_at = time.monotonic() + _LOOK_AGAIN_SECONDS
        unserved = {self._sources[place] for place in forgotten}
        self._registry.unserved(unserved & self._unserved)
        fresh, self._unserved = unserved - self._unserved, unserved
        if fresh:
            _log.info("the group has no bridge for %d sources: joining again", len(fresh))
            self._member.rejoin()

    def _renew_client(self) -> None:
        _log.info("leaving the group, and joining it with a new client")
        try:
            self._member.renew()
        except ReplicationError as error:
            _log.warning("the group's client cannot be made again: %s. %s", error.message, error.hint)
        else:
            self._joined = False

    def _publish(self) -> None:
        metadata = self._member.metadata()
        self._registry.ownership.publish(metadata)
        if self._registry.ownership.snapshot.metadata is not None:
            self._since = time.monotonic()
            self._lifetime.works()

    def _assigned(self, partitions: Collection[Partition]) -> None:
        self._changes.append(time.monotonic())
        self._places.update(partitions)
        self._registry.assigned(self._named(partitions), self._member.metadata())
        if not self._looked:
            self._looked, self._look_at = True, time.monotonic() + _LOOK_SECONDS

    def _revoked(self, partitions: Collection[Partition]) -> None:
        self._changes.append(time.monotonic())
        self._places.difference_update(partitions)
        self._registry.revoked(self._named(partitions))

    def _lost(self, partitions: Collection[Partition]) -> None:
        self._changes.append(time.monotonic())
        self._places.difference_update(partitions)
        self._registry.lost(self._named(partitions))

    def _named(self, partitions: Collection[Partition]) -> list[str]:
        return [self._sources[place] for place in partitions if place in self._sources]


class Recovery:
    """The sources whose positions have to be read."""

    def __init__(self, reader: PositionReader, clock: Callable[[], float] = time.monotonic) -> None:
        #: What another one reads is ignored: it was given up.
        self.reader = reader
        # What it reads now.
        self._due_now: dict[str, int] = {}
        self._clock = clock
        self._changed = threading.Condition()
        # The lease and the time from which on it may be read, by source.
        self._waiting: dict[str, tuple[int, float]] = {}
        self._backoff = Backoff(first=0.1, longest=2.0)
        # Sources of the next request: fewer after a failure, which may be that of one of them.
        self._many = _MOST
        #: Called with each result.
        self.serve: Callable[[str, int, Committed], None] = lambda _source, _lease, _committed: None
        self.unreadable: Callable[[str, int, ReplicationError], None] = lambda _source, _lease, _error: None
        #: Called with those whose position has to be searched for.
        self.search: Callable[[str, int], None] = lambda _source, _lease: None
        #: What keeps everything from being read; empty while nothing does.
        self.trouble = ""

    def add(self, source: str, lease: int, seconds: float = 0.0) -> None:
        """Have a source's position read after some seconds, for the holder of a lease."""
        with self._changed:
            # A lane may give back, late, a source that was lost and assigned again since: only the newest lease counts.
            if self._waiting.get(source, (lease, 0.0))[0] <= lease:
                self._waiting[source] = (lease, self._clock() + seconds)
                self._changed.notify()

    def turn(self, seconds: float) -> None:
        """Read what is due, waiting for it at most `seconds`."""
        reader, due = self.reader, self._due(seconds)
        if not due:
            return
        self._due_now = due
        results: Mapping[str, Committed | ReplicationError | None] = {}
        failed: ReplicationError | None = None
        try:
            results = reader.read(list(due))
        except ReplicationError as error:
            failed = error
        if reader is not self.reader:
            return
        self._due_now = {}
        if failed is not None:
            self._fail(due, failed)
            return
        self.trouble, self._many = "", min(_MOST, 2 * self._many)
        self._backoff.reset()
        # Those that are not in it left the bridge's file meanwhile.
        for source, result in results.items():
            if result is None:
                self.search(source, due[source])
            elif isinstance(result, ReplicationError):
                self.unreadable(source, due[source], result)
            else:
                self.serve(source, due[source], result)

    def go_on(self, reader: PositionReader) -> None:
        """Go on with another reader, whose thread takes the turns from now on: the former one does not return."""
        self.reader, due = reader, self._due_now
        for source, lease in due.items():
            self.add(source, lease)

    def _fail(self, due: Mapping[str, int], error: ReplicationError) -> None:
        if isinstance(error, NotConnected | Retryable):
            if error.message != self.trouble:
                _log.warning("%s. %s", error.message, error.hint or "Trying again.")
            self.trouble = error.message
            self._many = max(1, len(due) // 2)
            pause = self._backoff.pause()
            for source, lease in due.items():
                self.add(source, lease, pause)
        else:
            for source, lease in due.items():
                self.unreadable(source, lease, error)

    def _due(self, seconds: float) -> dict[str, int]:
        until = self._clock() + seconds
        with self._changed:
            while True:
                now = self._clock()
                sources = ((source, lease) for source, (lease, at) in self._waiting.items() if at <= now)
                due = dict(islice(sources, self._many))
                if due or now >= until:
                    break
                soonest = min((at for _, at in self._waiting.values()), default=until)
                self._changed.wait(max(0.0, min(until, soonest) - now))
            for source in due:
                del self._waiting[source]
            return due
