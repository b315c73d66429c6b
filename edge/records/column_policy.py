"""The policy at the edge: which tables leave the region, and what is done to their columns before.

Engine-neutral: a rule's function goes from a value's text, as the engine's log gives it, to the text that leaves. Nulls stay
null. Asked when a table is announced; the functions run for each value.
"""

import hmac
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from headrace.configuration.policy import ColumnRule
from headrace.configuration.policy import Policy as Section
from headrace.errors import ConfigurationError

#: A key that is too short can be found by trying, and with it the values.
_SHORTEST_KEY = 16


class Treatment(NamedTuple):
    """What is done to a column."""

    #: The rule's word for it.
    action: str
    #: From a value's text to the text that leaves; None for a column that does not leave at all.
    hide: Callable[[bytes], bytes] | None


class Policy:
    """The section `[policy]`, ready for use. Raises ConfigurationError for a hash key that is missing or too short."""

    def __init__(self, section: Section) -> None:
        self._section = section
        self._hash = _hashing(section) if section.hash_key is not None else None

    @property
    def has_rules(self) -> bool:
        """Whether anything is kept back or changed."""
        section = self._section
        return bool(section.include_tables or section.exclude_tables or section.columns)

    def admits(self, schema: str, table: str, above: Sequence[tuple[str, str]] | None = ()) -> bool:
        """Whether changes of a table leave the region.

        `above` are the tables that it is a partition of, whose rules are its own too; None where that is not known: then a table
        may be one of those that stay.
        """
        names = [(schema, table), *(above or ())]
        included, excluded = self._section.include_tables, self._section.exclude_tables
        if above is None and excluded:
            return False
        return (not included or any(_matches(name, included) for name in names)) and not any(
            _matches(name, excluded) for name in names
        )

    def admits_name(self, name: str, above: Sequence[str] = ()) -> bool:
        """Whether changes of `schema.table` leave; where more dots leave open which table that is, whether those of all do."""
        readings = [parts for each in above for parts in _readings(each)]
        return all(self.admits(*parts, readings) for parts in _readings(name))

    def treats_name(self, name: str, columns: Sequence[str]) -> bool:
        """Whether anything is done to one of these columns of `schema.table`, whichever table that is."""
        return any(self._treatment([parts], column) for parts in _readings(name) for column in columns)

    def treatments(
        self,
        schema: str,
        table: str,
        columns: Sequence[str],
        key: Sequence[str],
        above: Sequence[tuple[str, str]] | None = (),
    ) -> list[Treatment | None]:
        """Return what is done to each column of a table, None for nothing.

        `above` are the tables that it is a partition of, whose rules are its own too; None where that is not known: then the
        rules of a column's name hold, whatever their table. Raises ConfigurationError when a rule would make two rows of the
        table one: when it masks, truncates or excludes a column of the key.
        """
        names = None if above is None else [(schema, table), *above]
        found = [self._treatment(names, column) for column in columns]
        for column, treatment in zip(columns, found, strict=True):
            if treatment is not None and column in key and treatment.action != "hash":
                raise ConfigurationError(
                    f"[policy] would {treatment.action} {schema}.{table}.{column}, a column of the key: rows would fall together",
                    hint='Use action = "hash", which keeps keys apart and joins working, or name the table in exclude_tables.',
                )
        return found

    def _treatment(self, tables: Sequence[tuple[str, str]] | None, column: str) -> Treatment | None:
        """Return what the first rule does that matches a column of one of these tables; of any table for None."""
        for rule in self._section.columns:
            if (
                any(fnmatchcase(column, pattern.split(".")[-1]) for pattern in rule.columns)
                if tables is None
                else any(_matches((*table, column), rule.columns) for table in tables)
            ):
                return Treatment(rule.action, self._function(rule))
        return None

    def _function(self, rule: ColumnRule) -> Callable[[bytes], bytes] | None:
        if rule.action == "hash":
            return self._hash
        if rule.action == "mask":
            mask = rule.mask.encode()
            return lambda _text: mask
        if rule.action == "truncate":
            kept = rule.characters
            return lambda text: text.decode()[:kept].encode()
        return None


def _matches(name: tuple[str, ...], patterns: Sequence[str]) -> bool:
    """Whether a name matches one of the patterns, part by part, so that `*` does not reach into the next part."""
    return any(
        all(fnmatchcase(part, pattern) for part, pattern in zip(name, wanted.split("."), strict=True))
        for wanted in patterns
    )


def _readings(name: str) -> list[tuple[str, str]]:
    """Return each schema and table that a joined name may be of: names may have dots of their own."""
    return [(name[:at], name[at + 1 :]) for at, letter in enumerate(name) if letter == "."]


def _hashing(section: Section) -> Callable[[bytes], bytes]:
    assert section.hash_key is not None
    key = section.hash_key.reveal().encode()
    if len(key) < _SHORTEST_KEY:
        raise ConfigurationError(
            f"the secret behind [policy] hash_key has {len(key)} bytes, at least {_SHORTEST_KEY} are needed",
            hint="Make one with 'openssl rand -hex 32', and give every region whose hashes are to join the same one.",
        )
    return lambda text: hmac.digest(key, text, "sha256").hex().encode()
