"""Which topic a record goes to, in a stream with a topic for each table.

A record says in its `source` of which table it is (docs/records.md). It is found there without decoding the record: a text of a
row that holds the same bytes has them escaped. A record that is about no table goes to the stream's own topic, and so does one
without a key whose table's topic Kafka compacts, since it takes none there. Called where a batch is shared out.
"""

import re
from collections.abc import Mapping

from msgspec import DecodeError, json

from headrace.configuration.bridge import TableTopic
from headrace.errors import CorruptInput, NeedsOperator

#: How a record's own `source` begins, which is behind the rows.
_SOURCE = b'"source":{"version":'
_TEXT = rb'("[^"\\]*(?:\\.[^"\\]*)*")'
_NAMES = re.compile(rb',"schema":' + _TEXT + rb',"table":' + _TEXT)


class NoTopic(NeedsOperator):
    """A record's table has no topic."""


class TableRouter:
    """The topics of a stream's tables, and the one for everything else; of one source, and so of one thread."""

    def __init__(self, own: str, tables: Mapping[str, TableTopic]) -> None:
        self._own = own
        self._tables = tables
        # By the names as they stand in a record: with a key, and without.
        self._known: dict[bytes, tuple[str, str]] = {}
        # The names of the record before, how far into its source they stand, and their topics: the next one is mostly alike.
        self._names, self._ahead, self._topics = b"", 0, (own, own)

    @property
    def topics(self) -> dict[str, str]:
        """All of them, the stream's own one first, each with its `cleanup.policy`."""
        return {self._own: "delete"} | {table.topic: table.cleanup for table in self._tables.values()}

    def topic_of(self, key: bytes | None, value: bytes) -> str:
        """Return the topic of a record.

        Raises:
            CorruptInput: the record says of no table whether it is of it.
            NoTopic: its table has none.
        """
        at = value.rfind(_SOURCE)
        if not self._names or at < 0 or not value.startswith(self._names, at + self._ahead):
            self._turn(value, at)
        return self._topics[key is None]

    def _turn(self, value: bytes, at: int) -> None:
        names = _NAMES.search(value, at) if at >= 0 else None
        if names is None:
            raise CorruptInput(
                "a record does not say of which table it is", hint="Edges of this release do: upgrade the source's."
            )
        known = self._known.get(names[0])
        if known is None:
            known = self._known[names[0]] = self._find(names)
        self._names, self._ahead, self._topics = names[0], names.start() - at, known

    def _find(self, names: re.Match[bytes]) -> tuple[str, str]:
        try:
            schema, table = json.decode(names[1], type=str), json.decode(names[2], type=str)
        except DecodeError as error:
            raise CorruptInput("the name of a record's table is no text") from error
        if not table:
            return self._own, self._own
        found = self._tables.get(f"{schema}.{table}")
        if found is None:
            raise NoTopic(
                f"table {schema}.{table} has no topic, and the stream has one for each table",
                hint=f"Add \"{schema}.{table}\" to the stream's tables in the bridge's file, run 'headrace bridge init', and "
                "start the bridge again.",
            )
        return found.topic, self._own if "compact" in found.cleanup else found.topic
