"""Sources with a topic for each table and records in Avro in a run: tables are altered, and the registry refuses that, or hangs.

What is withheld comes once and in order when its schema is allowed, in the table's topic, and with the id of the schema that it
was written with; and while it is, other tables and other sources go on.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from headrace.batch import AVRO_MARK, WrittenWith
from headrace.position import Position
from tests.simulation.database import Database
from tests.simulation.kafka_broker import Broker
from tests.simulation.outcome import FailedRunError, first_difference
from tests.simulation.records import position_in
from tests.simulation.registry import Registry, table_schema
from tests.simulation.run_part import RunPart
from tests.simulation.scheduler import Scheduler

STREAM = "banking"
TABLES = ("a", "b", "c")
_WITHHELD = f"{STREAM}.withheld"
#: The parts of a record with a schema of their own, as subjects and as schemas name them.
_PARTS = {"key": "Key", "value": "Envelope"}
#: How long other tables and sources may wait for one whose schema is refused, in seconds.
_PATIENCE = 20.0


class TableDatabase(Database):
    """A database with tables, whose schemas are altered now and then."""

    def __init__(self, scheduler: Scheduler, source: str, epoch: int) -> None:
        super().__init__(scheduler, source, epoch)
        #: Where in the log each table was altered.
        self.altered: dict[str, list[int]] = {table: [] for table in TABLES}
        self.avro = _Encoder(self)

    def alter(self, table: str) -> None:
        """Give a table another schema, from the next transaction on."""
        self.altered[table].append(self.end)

    def table_of(self, position: Position) -> tuple[str, int]:
        """Return the table of a change, and which of its schemas it was written with."""
        table = TABLES[(position.commit // 7 + position.ordinal // 2) % len(TABLES)]
        return table, sum(position.commit > at for at in self.altered[table])


class _Encoder:
    """In place of edge.records.avro_records.AvroRecords: values stay as they are, behind a mark."""

    def __init__(self, database: TableDatabase) -> None:
        self._database = database

    def encode(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> tuple[list[bytes | None], list[bytes | None], list[WrittenWith]]:
        """Return marked keys and values, and what they were written with."""
        written: dict[tuple[str, int], WrittenWith] = {}
        marks = []
        for value in values:
            table, version = self._database.table_of(position_in(value))
            if (table, version) not in written:
                texts = [table_schema(table, part, version) for part in ("Key", "Envelope")]
                written[table, version] = WrittenWith(len(written), "public", table, *texts)
            marks.append(written[table, version].mark)
        return (
            [mark + (key or b"") for mark, key in zip(marks, keys, strict=True)],
            [mark + (value or b"") for mark, value in zip(marks, values, strict=True)],
            list(written.values()),
        )


class Tables(RunPart):
    """The tables of one run; `edges` is set to those of its sources."""

    def __init__(self, scheduler: Scheduler, broker: Broker, *, until: float, calm_at: float) -> None:
        self._scheduler, self._broker, self._calm_at = scheduler, broker, calm_at
        self.registry = Registry(scheduler)
        self.sources = [f"tables/t{n}" for n in range(scheduler.random.choice((1, 2, 3)))]
        self.edges: list[Any] = []
        #: Whether nothing else goes wrong, so that others may not wait.
        self.is_calm = False
        broker.make(STREAM, len(self.sources))
        for table in TABLES:
            broker.make(self._topic(table), len(self.sources))
        broker.make(_WITHHELD, len(self.sources), **{"retention.ms": "-1", "retention.bytes": "-1"})
        self._left = scheduler.random.choice((10, 40)) * len(self.sources)
        self._pace = until / self._left

    @staticmethod
    def _topic(table: str) -> str:
        return f"{STREAM}.public.{table}"

    def sections(self) -> dict[str, Any]:
        """Return the stream and the registry."""
        stream = {
            "sources": {source: [number] for number, source in enumerate(self.sources)},
            "tables": {f"public.{table}": "delete" for table in TABLES},
        }
        return {"registry": {"url": "http://registry:8081"}, "streams": {STREAM: stream}}

    def faults(self) -> dict[str, Callable[[], object]]:
        """Return what may go wrong with schemas and their registry."""
        random, registry = self._scheduler.random, self.registry

        def hang() -> None:
            registry.hangs_until = self._scheduler.now + random.choice((3, 20))

        def fail() -> None:
            registry.fails_until = self._scheduler.now + random.choice((3, 20))

        return {
            "registry hangs": hang,
            "registry fails": fail,
            "table refused": self._refuse,
            "table without leader": self._take_leader,
        }

    def themes(self) -> list[tuple[str, ...]]:
        """Return which faults go together."""
        return [
            ("table refused", "bridge crash", "bridge pause"),
            ("table refused", "table without leader"),
            ("table refused", "registry hangs", "bridge stop"),
            ("table refused", "kafka frozen", "answers lost"),
        ]

    def _take_leader(self) -> None:
        """Leave a partition of a table, or of withheld records, without a leader for a while."""
        random = self._scheduler.random
        topic = random.choice([_WITHHELD, *map(self._topic, TABLES)])
        place = topic, random.randrange(len(self.sources))
        self._broker.leaderless_until[place] = self._scheduler.now + random.choice((3.0, 20.0))

    def _refuse(self) -> None:
        """Alter a table, of one source or of all, whose new schema is refused for a while."""
        random, now = self._scheduler.random, self._scheduler.now
        table = random.choice(TABLES)
        seconds = min(random.choice((3.0, 15.0, 40.0)), max(0.0, self._calm_at - self._scheduler.elapsed))
        for part in _PARTS:
            self.registry.refused_until[self._subject(table, part)] = now + seconds
        altered = random.sample(self.edges, random.randint(1, len(self.edges)))
        self._alter(table, altered)
        if random.random() < 0.7:
            # Once more while it is refused; an operator registers the first of the two.
            versions = {len(edge.database.altered[table]) for edge in altered}
            self._scheduler.after(seconds * 0.3, lambda: self._alter(table, altered))
            self._scheduler.after(seconds * random.choice((0.4, 0.7)), lambda: self._allow(table, versions))
        self._scheduler.trace(f"{table} is altered by {[edge.source for edge in altered]}, refused for {seconds} s")
        if self.is_calm:
            self._look_at_others(table)

    def _alter(self, table: str, edges: Sequence[Any]) -> None:
        """Alter a table of some sources, which at times write much that is withheld then, in several batches."""
        random = self._scheduler.random
        for edge in edges:
            edge.database.alter(table)
            for _ in range(random.choice((0, 20, 20))):
                edge.database.write(6)

    def _allow(self, table: str, versions: Iterable[int]) -> None:
        for version, (part, record) in itertools.product(versions, _PARTS.items()):
            self.registry.allow(self._subject(table, part), table_schema(table, record, version, STREAM))

    def _subject(self, table: str, part: str) -> str:
        return f"{self._topic(table)}-{part}"

    def _look_at_others(self, table: str) -> None:
        """Fail unless what others have now comes although a table is withheld."""
        there = {(edge.source, each): len(self._wanted(edge, each)) for edge in self.edges for each in TABLES}

        def look() -> None:
            for (source, each), count in there.items():
                refused = max(self.registry.refused_until.get(f"{self._topic(each)}-value", 0.0), 0.0)
                number = len(self._records(source, each))
                if each != table and refused < self._scheduler.now - _PATIENCE and number < count:
                    raise FailedRunError(f"{source} {each} waits for {table}: {number} of {count} records")

        self._scheduler.after(_PATIENCE, look)

    def start(self) -> None:
        """Write changes."""
        for edge in self.edges:
            edge.start()
            self._scheduler.after(self._scheduler.random.random(), lambda edge=edge: self._write(edge))  # type: ignore[misc]

    def _write(self, edge: Any) -> None:
        random = self._scheduler.random
        for _ in range(random.choice((1, 1, 3))):
            edge.database.write(random.choice((1, 2, 6)))
        self._left -= 1
        if self._left > 0:
            self._scheduler.after(random.expovariate(1 / self._pace / len(self.edges)), lambda: self._write(edge))

    def is_done(self) -> bool:
        """Whether all records are in their tables' topics, and no table is withheld."""
        return not any(self._withheld()) and not self._missing()

    def _withheld(self) -> Iterator[str]:
        """Yield the committed positions that name withheld tables."""
        for number in range(len(self.sources)):
            texts = [
                group.offsets[STREAM, number][1]
                for group in self._broker.groups.values()
                if (STREAM, number) in group.offsets
            ]
            yield from (text for text in texts if "public." in text)

    def _missing(self) -> int:
        pairs = list(itertools.product(self.edges, TABLES))
        return sum(len(self._wanted(edge, table)) - len(self._records(edge.source, table)) for edge, table in pairs)

    def _wanted(self, edge: Any, table: str) -> list[tuple[bytes, bytes]]:
        """Return keys and values of a table, as they are to be in Kafka."""
        wanted = []
        for position in edge.database.changes():
            of, version = edge.database.table_of(position)
            if of == table:
                key, value = edge.database.record(position)
                heads = [self._head(table, part, version) for part in ("Key", "Envelope")]
                wanted.append((heads[0] + key, heads[1] + value))
        return wanted

    def _head(self, table: str, part: str, version: int) -> bytes:
        number = self.registry.ids.get(table_schema(table, part, version, STREAM), 0)
        return AVRO_MARK + number.to_bytes(4, "big")

    def _records(self, source: str, table: str) -> list[tuple[Any, Any]]:
        log = self._broker.topics[self._topic(table)][self.sources.index(source)]
        return [(entry.key, entry.value) for _, entry in log.committed()]

    def judge(self, *, done: bool) -> None:
        """Compare the topics with what was written."""
        for each in self.edges:
            if each.stopped_by is not None:
                raise FailedRunError(f"{each.name} ended: {type(each.stopped_by).__name__}: {each.stopped_by}")
        for edge, table in itertools.product(self.edges, TABLES):
            first_difference(f"{edge.source} {table}", self._wanted(edge, table), self._records(edge.source, table))
        others = [entry for log in self._broker.topics[STREAM] for _, entry in log.committed()]
        if others:
            raise FailedRunError(f"{len(others)} records of tables are in the stream's own topic, as {others[0]}")

    def shown(self) -> str:
        """Return how far it is."""
        return f"{self._missing()} records of tables are missing, withheld: {list(self._withheld())}"
