"""The rules of a stream that name tables with `*`, as `public.*`: which table, and which topic in Kafka, each is for.

A topic of a table is made by an operator, never by a record that comes: a rule is for the topics that there are.
"""

import re
from collections.abc import Collection, Mapping

from headrace.configuration.bridge import topic_of


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
        found = {}
        for topic in sorted(there):
            table = topic.removeprefix(begin)
            if table != topic and "." in table:
                cleanup = next((cleanup for rule, cleanup in self._topics if rule.fullmatch(table)), None)
                if cleanup is not None:
                    found[topic] = cleanup
        return found


def _pattern(rule: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, rule.split("*"))), re.DOTALL)
