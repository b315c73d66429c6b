"""Releases withheld tables whose schema the registry takes by now, one table of a source at a time.

It reads what was withheld and hands it to the session, whose lane writes it and moves the committed state in the same
transaction: a release can be cut off anywhere, and goes on where it was, at whichever bridge has the source. No thread of its
own: the bridge has one that calls `turn`.
"""

import logging
import time
from collections.abc import Callable, Sequence

from bridge.model.ports import Partition
from bridge.model.route import SourceRoute
from bridge.model.withheld import Released
from bridge.model.withheld_records import key
from bridge.routing.registered_schemas import SchemaIds, find_needed
from bridge.source.registry import SourceRegistry
from bridge.source.session import Session
from bridge.source.state import SourceState
from bridge.withheld.reader import ReadsWithheld, WithheldRecord
from headrace.batch import WrittenWith
from headrace.errors import ReplicationError, Retryable

_log = logging.getLogger(__name__)

#: How soon it is looked again whether a table can be released, and how soon after an error, in seconds.
_AGAIN_SECONDS = 2.0
#: Of a session's release so much waits at most, in bytes.
_MOST_WAITING = 4 << 20
#: Of so many sources at once: one that releases takes no deliveries, and what waits is in memory.
_MOST_SOURCES = 16
_PAUSE_SECONDS = 0.05


class Releaser:
    """Looks at the withheld tables of all sources that this bridge serves; for one thread."""

    def __init__(
        self,
        registry: SourceRegistry,
        schemas: SchemaIds,
        reader: ReadsWithheld,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._schemas, self._reader, self._clock = registry, schemas, reader, clock
        self._again_at = 0.0
        # Of releases under way: how far each has read.
        self._read: dict[Session, int] = {}
        # What the first withheld record of tables was written with, and the offset from which it was looked for.
        self._first: dict[tuple[str, str], tuple[int, list[WrittenWith]]] = {}
        # Up to where released records of a source are deleted.
        self._deleted: dict[str, int] = {}
        # What keeps sources from being gone on with, as it was logged.
        self._troubles: dict[str, str] = {}

    def turn(self, seconds: float) -> None:
        """Go on with what is released, and look now and then what else can be; takes `seconds` when there is nothing to do."""
        is_time = self._clock() >= self._again_at
        sessions = [
            (state, session) for state in self._registry.states.values() if (session := state.session) is not None
        ]
        self._read = {session: at for session, at in self._read.items() if session.release.table and not session.closed}
        moved = False
        for state, session in sessions:
            place = state.route.withheld_place
            if place is None:
                continue
            try:
                moved |= self._step(state, session, place, is_time=is_time)
            except ReplicationError as error:
                self._failed(state, session, error)
            if session.looks_first:
                session.looks_first = False
                self._registry.ready.notify(session)
        if is_time:
            self._again_at = self._clock() + _AGAIN_SECONDS
            if not any(session.withheld.tables for _, session in sessions):
                self._reader.close()
        if not moved:
            time.sleep(min(seconds, _PAUSE_SECONDS if self._read else seconds))

    def _step(self, state: SourceState, session: Session, place: Partition, *, is_time: bool) -> bool:
        """Do what there is to do for a session; return whether there was something for its lane."""
        if session.release.table:
            return self._go_on(session, place)
        if not (is_time or session.looks_first):
            return False
        # Its lane may commit another at any moment: nothing is deleted by an end that goes with other tables.
        withheld, moved = session.withheld, False
        if withheld.tables:
            moved = len(self._read) < _MOST_SOURCES and self._begin(state, session, place)
        elif withheld.end:
            self._delete(session.source, place, withheld.end)
        self._troubles.pop(session.source, None)
        return moved

    def _begin(self, state: SourceState, session: Session, place: Partition) -> bool:
        """Begin to release the first of a session's tables that can be; note why the others cannot."""
        for table, withheld_table in session.withheld.tables.items():
            if session.release.is_put_off(table):
                continue
            first = self._look(session, place, table, withheld_table.next)
            if refusal := self._refusal(state.route, table, first):
                state.refused(session, table, refusal)
                continue
            session.release.begin(table)
            self._read[session] = withheld_table.next
            _log.info(
                "%s: table %s is released from offset %d of %s[%d] on",
                session.source,
                table,
                withheld_table.next,
                *place,
            )
            return self._go_on(session, place)
        return False

    def _look(self, session: Session, place: Partition, table: str, begin: int) -> list[WrittenWith]:
        """Return what a table's first withheld record was written with; empty where that is JSON, or there is none."""
        cached = self._first.get((session.source, table))
        if cached is not None and cached[0] == begin:
            return cached[1]
        records: list[WithheldRecord] = []
        end, upto = session.withheld.end, begin
        while not records and upto < end:
            records, upto = self._reader.read(place, key(session.source, table), upto, end, most=1)
        first = records[0].batch.written if records else []
        if records:
            self._first[session.source, table] = begin, first
        return first

    def _refusal(self, route: SourceRoute, table: str, first: Sequence[WrittenWith]) -> str:
        """Return why the registry does not take the schemas of a withheld record; empty when it does."""
        for written in first:
            assert route.tables is not None
            # Records without a key, which may have another topic, get theirs when they are written.
            topic, _ = route.tables.topics_of(written.schema, written.table)
            needed = find_needed(topic, written, route.prefix, route.compatibility, of_one_table=topic != route.topic)
            try:
                self._schemas.ids(needed)
            except Retryable:
                return f"the registry is asked for the schemas of {table}"
            except ReplicationError as error:
                return error.message
        return ""

    def _go_on(self, session: Session, place: Partition) -> bool:
        """Give a session what comes next; return whether there was something."""
        table, end = session.release.table, session.withheld.end
        if not table or session.release.size >= _MOST_WAITING:
            return False
        begin = self._read.get(session)
        if begin is None or begin >= end:
            return False
        records, upto = self._reader.read(place, key(session.source, table), begin, end)
        steps = []
        for each in records:
            steps.append(Released(table, begin, each.offset + 1, each.batch, each.size))
            begin = each.offset + 1
        if begin < upto or not steps:
            steps.append(Released(table, begin, upto, None))
        self._read[session] = upto
        session.release.put(steps)
        self._registry.ready.notify(session)
        return True

    def _failed(self, state: SourceState, session: Session, error: ReplicationError) -> None:
        """Let deliveries be taken again, and try later."""
        for table in session.withheld.tables:
            state.refused(session, table, error.message)
        if error.message != self._troubles.get(session.source):
            _log.warning("%s: withheld records: %s. %s", session.source, error.message, error.hint or "Trying again.")
        self._troubles[session.source] = error.message
        self._reader.close()
        self._read.pop(session, None)
        session.release.end()
        self._registry.ready.notify(session)

    def _delete(self, source: str, place: Partition, end: int) -> None:
        """Delete what is in other topics by now."""
        if self._deleted.get(source, 0) < end:
            self._reader.delete(place, end)
            self._deleted[source] = end
