"""Where the records of each source go, by the bridge's file: to the stream's own topic, or to a topic for each table.

A record names its table (headrace/schema.py). A record that is about no table goes to the stream's own topic, and so does
one without a key whose table's topic Kafka compacts, since it takes none there, and one of a table that has no topic. Where
transactions begin and end is about no table; it has a topic of its own where the file asks for one. Called where a batch is
shared out.

Rules of a stream may name tables with `*`, as `public.*`. An operator makes the topics of tables, never a record that comes: a
rule is for the topics that there are.
"""

import logging
import re
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from headrace.configuration.bridge import BridgeFile, TableTopic, topic_of
from headrace.schema import SOURCE, find_names, schema_and_table

#: How a record begins of where a transaction begins or ends (edge/records/envelope.py): no other one begins so.
_ENDS = b'{"status":"'

_log = logging.getLogger(__name__)

#: Names of tables that are remembered, and that are shown as without a topic: records may have any.
_MOST_NAMES, _MOST_SHOWN = 20_000, 1000


class TablePatterns:
    """The rules of one stream, in the file's order: the first one that matches counts."""

    def __init__(self, prefix: str, rules: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._tables = [(_pattern(rule), cleanup) for rule, cleanup in rules.items()]
        # What Kafka does not take in a name is `_` in a topic.
        parts = ((rule.split("*"), cleanup) for rule, cleanup in rules.items())
        self._topics = [
            (re.compile(".*".join(re.escape(topic_of("", part)[1:]) for part in split)), cleanup)
            for split, cleanup in parts
        ]

    def topic_of(self, table: str) -> str | None:
        """Return the name that the topic of a table has to have; None where no rule is for the table."""
        return topic_of(self._prefix, table) if any(rule.fullmatch(table) for rule, _ in self._tables) else None

    def topics(self, there: Collection[str]) -> dict[str, str]:
        """Return those of some topics that rules are for, each with its `cleanup.policy`."""
        begin = f"{self._prefix}."
        cleanups = {}
        for topic in sorted(there):
            table = topic.removeprefix(begin)
            if table != topic and "." in table:
                cleanup = next((cleanup for rule, cleanup in self._topics if rule.fullmatch(table)), None)
                if cleanup is not None:
                    cleanups[topic] = cleanup
        return cleanups


def _pattern(rule: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, rule.split("*"))), re.DOTALL)


class TableRouter:
    """The topics of a stream's tables, and the one for everything else; of one source, and so of one thread."""

    def __init__(
        self, own: str, tables: Mapping[str, TableTopic], patterns: TablePatterns | None = None, transactions: str = ""
    ) -> None:
        """`transactions` is the topic of where they begin and end; the stream's own one when empty."""
        self._own = own
        self._transactions = transactions
        self._tables = tables
        self._patterns = patterns
        # The topics in Kafka that patterns are for, each with its `cleanup.policy`.
        self._found: dict[str, str] = {}
        #: Tables whose records went to the stream's own topic, because they have none.
        self.without_topic: set[str] = set()
        # Topics with a key, and without, by the names as they are in a record.
        self._known: dict[bytes, tuple[str, str]] = {}
        # The names of the record before, how far into its source they are, and their topics: the next one is mostly alike.
        self._names, self._ahead, self._topics = b"", 0, (own, own)

    @property
    def topics(self) -> dict[str, str]:
        """All of them, the stream's own one first, each with its `cleanup.policy`."""
        named = {table.topic: table.cleanup for table in self._tables.values()}
        return dict.fromkeys(filter(None, (self._own, self._transactions)), "delete") | self._found | named

    def learn(self, there: Collection[str]) -> None:
        """Take note of the topics that are in Kafka, before the first record: patterns are matched with these."""
        if self._patterns is not None:
            self._found = self._patterns.topics(there)

    def topic_of(self, key: bytes | None, value: bytes) -> str:
        """Return the topic of a record.

        Raises:
            CorruptInput: the record names no table.
        """
        if self._transactions and value.startswith(_ENDS):
            return self._transactions
        at = value.rfind(SOURCE)
        if not self._names or at < 0 or not value.startswith(self._names, at + self._ahead):
            self._turn(value, at)
        return self._topics[key is None]

    def table_of(self, value: bytes) -> str:
        """Return the table, `schema.table`, that a record in JSON is about; empty for one that is about none."""
        at = value.rfind(SOURCE)
        schema, table = schema_and_table(find_names(value, at)) if at >= 0 else ("", "")
        return f"{schema}.{table}" if table else ""

    def _turn(self, value: bytes, at: int) -> None:
        names = find_names(value, at)
        topics = self._known.get(names[0])
        if topics is None:
            if len(self._known) >= _MOST_NAMES:
                self._known.clear()
            topics = self._known[names[0]] = self.topics_of(*schema_and_table(names))
        self._names, self._ahead, self._topics = names[0], names.start() - at, topics

    def topic_of_no_table(self, value: bytes) -> str:
        """Return the topic of a record that is about no table, in a batch whose changes are not JSON."""
        return self._transactions if self._transactions and value.startswith(_ENDS) else self._own

    def topics_of(self, schema: str, table: str) -> tuple[str, str]:
        """Return the topics of a table's records with a key, and of those without."""
        if not table:
            return self._own, self._own
        name = f"{schema}.{table}"
        named = self._tables.get(name)
        topic, cleanup = named or self._of_pattern(name)
        if not topic:
            self._note(name)
            return self._own, self._own
        return topic, self._own if "compact" in cleanup else topic

    def _of_pattern(self, table: str) -> tuple[str, str]:
        topic = self._patterns.topic_of(table) if self._patterns is not None else None
        return (topic, self._found[topic]) if topic is not None and topic in self._found else ("", "")

    def _note(self, table: str) -> None:
        if table not in self.without_topic and len(self.without_topic) < _MOST_SHOWN:
            self.without_topic.add(table)
            _log.warning(
                "table %s has no topic: its records go to %s. To give it one, name it in the stream's tables, run "
                "'headrace bridge init', with --table where a pattern names it, and start the bridge again.",
                table,
                self._own,
            )


class SourceRoute(NamedTuple):
    """Where a source's records go."""

    source: str
    #: The stream's own topic; the source's position is committed with its partitions.
    topic: str
    partitions: tuple[int, ...]
    #: Where the records of tables go, if not there.
    tables: TableRouter | None = None
    #: What the names of its records in Avro begin with, and which changes of their schemas the registry takes.
    prefix: str = ""
    compatibility: str = ""
    #: Where the records of its withheld tables wait, in the lowest of its partitions; empty where none can be withheld.
    withheld: str = ""
    #: Whether each of its records has to name it.
    names_checked: bool = False

    @property
    def topics(self) -> dict[str, str]:
        """All topics that its records go to, the stream's own one first, each with its `cleanup.policy`."""
        return {self.topic: "delete"} if self.tables is None else self.tables.topics

    @property
    def places(self) -> list[tuple[str, int]]:
        """The partitions of the stream's own topic that the source owns."""
        return [(self.topic, partition) for partition in self.partitions]

    @property
    def all_places(self) -> list[tuple[str, int]]:
        """The partitions of all topics that the source owns."""
        topics = [*self.topics, *([self.withheld] if self.withheld else [])]
        return [(topic, partition) for topic in topics for partition in self.partitions]

    @property
    def withheld_place(self) -> tuple[str, int] | None:
        """The partition of its withheld records; None where no table can be withheld."""
        return (self.withheld, min(self.partitions)) if self.withheld else None


def routes(file: BridgeFile) -> dict[str, SourceRoute]:
    """Return the route of each source."""
    return {
        source: SourceRoute(
            source,
            file.topic(name),
            tuple(partitions),
            _router(file, name) if stream.tables else None,
            file.prefix(name),
            stream.compatibility,
            file.withheld_topic(name),
            stream.check_source_names,
        )
        for name, stream in file.streams.items()
        for source, partitions in stream.sources.items()
    }


def first_places(by_source: Mapping[str, SourceRoute]) -> dict[tuple[str, int], str]:
    """Return the source that each source's first partition represents in the group's assignment."""
    return {route.places[0]: source for source, route in by_source.items()}


def _router(file: BridgeFile, stream: str) -> TableRouter:
    patterns = TablePatterns(file.prefix(stream), file.patterns(stream))
    return TableRouter(file.topic(stream), file.tables(stream), patterns, file.transaction_topic(stream))


def learn(all_routes: Iterable[SourceRoute], there: Collection[str]) -> None:
    """Have routes know which topics are in Kafka: patterns are for those alone."""
    for route in all_routes:
        if route.tables is not None:
            route.tables.learn(there)
