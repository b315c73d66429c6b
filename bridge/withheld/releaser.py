"""Releases withheld tables whose schema the registry takes now, one table of a source at a time.

It reads what was withheld, in order, and hands it to the session, whose lane writes it and moves the committed state in the same
transaction: a release can be cut off anywhere, and goes on where it was, at whichever bridge has the source. No thread of its
own: the bridge has one that calls `turn`.
"""

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from bridge.kafka.client import TIMEOUT, KafkaError, KafkaException, TopicPartition, consumer
from bridge.kafka.entries import describe
from bridge.kafka.errors import translated
from bridge.kafka.lifetime import KeptClient
from bridge.model.ports import Partition
from bridge.model.route import SourceRoute
from bridge.routing import withheld_records as records
from bridge.routing.registered_schemas import BridgeSchemas, find_needed
from bridge.routing.withheld_records import record_key
from bridge.source.registry import SourceRegistry
from bridge.source.session import Released, Session
from bridge.source.state import SourceState
from headrace import doors
from headrace.batch import Batch, WrittenWith
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable

#: Size in bytes from which on a step of a release takes no further batch.
_MOST_BYTES = 1 << 20
_MANY = 100
#: Seconds after which a step that has read something ends: other sources wait for theirs, and the position for all of them.
_STEP_SECONDS = 1.0


class WithheldRecord(NamedTuple):
    """One withheld record."""

    offset: int
    batch: Batch
    #: In bytes.
    size: int


class ReadsWithheld(Protocol):
    """What a releaser needs of Kafka; used by one thread."""

    def read(
        self, place: Partition, key: bytes, begin: int, end: int, *, most: int = _MOST_BYTES
    ) -> tuple[list[WithheldRecord], int]:
        """Return the next withheld records of a key from an offset on, and the offset to go on from: `end` where all is read.

        Raises NotConnected, NeedsOperator for records that are gone, CorruptInput for one that no bridge wrote.
        """

    def delete(self, place: Partition, end: int) -> None:
        """Delete what is before an offset: all of it is in other topics."""

    def close(self) -> None:
        """Give the connection up; the next call makes another one."""


class KafkaReader:
    """Implements `ReadsWithheld`; keeps a connection between calls."""

    def __init__(self, connection: KafkaConnection, group: str, admin: Any) -> None:
        self._admin = admin
        self._client = KeptClient(connection, lambda: consumer(connection, group))

    def read(
        self, place: Partition, key: bytes, begin: int, end: int, *, most: int = _MOST_BYTES
    ) -> tuple[list[WithheldRecord], int]:
        """Return the next withheld records of a key, and where to go on."""
        if begin >= end:
            return [], end
        with translated(f"read withheld records in {place[0]}[{place[1]}]"):
            client = self._client.get()
            # At once: the client would wait for a leader as long as it may.
            partition = describe(client, place[0], TIMEOUT).partitions.get(place[1])
            if partition is None or partition.leader < 0:
                raise NotConnected(f"Kafka: {place[0]}[{place[1]}] has no leader")
            low, _ = client.get_watermark_offsets(TopicPartition(*place), timeout=TIMEOUT)
            if low > begin:
                raise NeedsOperator(
                    f"withheld records of {key.decode()} are gone from {place[0]}[{place[1]}]: they began at offset {begin} or "
                    f"after it, and the partition begins at {low}",
                    hint="Restore the topic from a copy: these records are in no other one.",
                )
            client.assign([TopicPartition(*place, begin)])
            try:
                return self._read(client, place, key, begin, end, most)
            finally:
                client.unassign()

    @staticmethod
    def _read(
        client: Any, place: Partition, key: bytes, begin: int, end: int, most: int
    ) -> tuple[list[WithheldRecord], int]:
        own_records: list[WithheldRecord] = []
        size, at = 0, begin
        until, enough = time.monotonic() + TIMEOUT, time.monotonic() + _STEP_SECONDS
        while size < most and not (at > begin and time.monotonic() > enough):
            if time.monotonic() > until:
                # A transaction that is committed may lack its marker in this partition for a moment.
                raise NotConnected(f"Kafka: {place[0]}[{place[1]}] could not be read up to offset {end}")
            for record in client.consume(_MANY, timeout=0.1):
                if record.error() is not None:
                    if record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - named so.
                        continue
                    raise KafkaException(record.error())
                until = time.monotonic() + TIMEOUT
                if record.offset() >= end:
                    return own_records, end
                at = record.offset() + 1
                if record.key() == key:
                    where = f"{place[0]}[{place[1]}], offset {record.offset()},"
                    try:
                        batch = records.batch_of(record.headers(), record.value(), where)
                    except Exception as error:
                        raise doors.WITHHELD.refuse(error, where) from error
                    own_records.append(WithheldRecord(record.offset(), batch, len(record.value())))
                    size += own_records[-1].size
                if at == end:
                    return own_records, end
        return own_records, at

    def close(self) -> None:
        """Give the connection up."""
        self._client.close()

    def delete(self, place: Partition, end: int) -> None:
        """Delete what is before an offset."""
        with translated(f"delete released records in {place[0]}[{place[1]}]", self._admin):
            for answer in self._admin.delete_records([TopicPartition(*place, end)], request_timeout=TIMEOUT).values():
                answer.result()


_log = logging.getLogger(__name__)

#: Seconds between two checks whether a table can be released, and until the check after an error.
_AGAIN_SECONDS = 2.0
#: Largest size in bytes of releases that wait in one session.
_MOST_WAITING = 4 << 20
#: Most sources that release at once: one that releases takes no deliveries, and what waits is in memory.
_MOST_SOURCES = 16
_PAUSE_SECONDS = 0.05
#: How much longer than a failed attempt to read took the next one waits: others have that time.
_OTHERS_TIMES = 9


class Releaser:
    """Looks at the withheld tables of all sources that this bridge serves; for one thread."""

    def __init__(
        self,
        registry: SourceRegistry,
        schemas: BridgeSchemas,
        reader: ReadsWithheld,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry, self._schemas, self._reader, self._clock = registry, schemas, reader, clock
        self._again_at = 0.0
        # How far each release under way has read.
        self._read: dict[Session, int] = {}
        # What the first withheld record of tables was written with, and the offset from which it was searched.
        self._first: dict[tuple[str, str], tuple[int, list[WrittenWith]]] = {}
        # The offset up to which released records of a source are deleted.
        self._deleted: dict[str, int] = {}
        # The error that holds up each source, as it was logged.
        self._troubles: dict[str, str] = {}
        # Those whose records could not be read, the one that was tried last at the end; and when the next one is tried again.
        self._unread: dict[str, None] = {}
        self._retry_at = 0.0

    def turn(self, seconds: float) -> None:
        """Go on with what is released, and look now and then what else can be; takes `seconds` when there is nothing to do.

        Sources whose partition cannot be read cost the others a tenth of the time, and a turn ends with the first slow one.
        """
        is_time = self._clock() >= self._again_at
        sessions = self._sessions()
        self._read = {session: at for session, at in self._read.items() if session.release.table and not session.closed}
        moved = is_slow = False
        for state, session in sessions:
            place = state.route.withheld_place
            if place is None:
                continue
            if session.source not in self._unread or (is_time and self._clock() >= self._retry_at):
                moves, is_slow = self._attempt(state, session, place, is_time=is_time)
                moved |= moves
            if session.looks_first:
                session.looks_first = False
                self._registry.ready.notify(session)
            if is_slow:
                break
        if is_time and not is_slow:
            self._again_at = self._clock() + _AGAIN_SECONDS
            if not any(session.withheld.tables for _, session in sessions):
                self._reader.close()
        if not moved:
            time.sleep(min(seconds, _PAUSE_SECONDS if self._read else seconds))

    def _attempt(self, state: SourceState, session: Session, place: Partition, *, is_time: bool) -> tuple[bool, bool]:
        """Do what there is to do for a session; return whether its lane has something, and whether this failed slowly."""
        began = self._clock()
        try:
            moved = self._step(state, session, place, is_time=is_time)
        except ReplicationError as error:
            self._failed(state, session, error)
            took = self._clock() - began
            self._unread.pop(session.source, None)
            if took > _STEP_SECONDS or session.withheld.tables:
                self._unread[session.source] = None
            if took > _PAUSE_SECONDS:
                self._retry_at = began + took * (1 + _OTHERS_TIMES)
            return False, took > _STEP_SECONDS
        if moved or not session.withheld.tables:
            self._unread.pop(session.source, None)
        return moved, False

    def _sessions(self) -> list[tuple[SourceState, Session]]:
        """Return the sessions there are, those last whose records could not be read, in the order in which they are tried."""
        sessions = [
            (state, session) for state in self._registry.states.values() if (session := state.session) is not None
        ]
        # A source that has no session now may have one with the same partition at any moment.
        self._unread = {source: None for source in self._unread if source in self._registry.states}
        turns = {source: number for number, source in enumerate(self._unread)}
        return sorted(sessions, key=lambda each: turns.get(each[1].source, -1))

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
            records, upto = self._reader.read(place, record_key(session.source, table), upto, end, most=1)
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
        records, upto = self._reader.read(place, record_key(session.source, table), begin, end)
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
        """Delete what is in other topics now."""
        if self._deleted.get(source, 0) < end:
            self._reader.delete(place, end)
            self._deleted[source] = end
