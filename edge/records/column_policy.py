"""The policy at the edge: which tables leave the region, and what is done to their columns before.

Engine-neutral: a rule's function goes from a value's text, as the engine's log gives it, to the text that leaves. Nulls stay
null. Asked when a table is announced; the functions run for each value.
"""

import hmac
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from headrace.configuration.edge import ColumnRule
from headrace.configuration.edge import Policy as Section
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

    def admits(self, schema: str, table: str) -> bool:
        """Whether changes of a table leave the region."""
        included, name = self._section.include_tables, (schema, table)
        return (not included or _matches(name, included)) and not _matches(name, self._section.exclude_tables)

    def admits_name(self, name: str) -> bool:
        """Whether changes of `schema.table` leave; where more dots leave open which table that is, whether those of all do."""
        return all(self.admits(*parts) for parts in _readings(name))

    def treats_name(self, name: str, columns: Sequence[str]) -> bool:
        """Whether anything is done to one of these columns of `schema.table`, whichever table that is."""
        return any(self._treatment((*parts, column)) for parts in _readings(name) for column in columns)

    def excludes_name(self, name: str) -> bool:
        """Whether `exclude_tables` names `schema.table`, whichever table that is."""
        return any(_matches(parts, self._section.exclude_tables) for parts in _readings(name))

    def treatments(self, schema: str, table: str, columns: Sequence[str], key: Sequence[str]) -> list[Treatment | None]:
        """Return what is done to each column of a table, None for nothing.

        Raises ConfigurationError when a rule would make two rows of the table one: when it masks, truncates or excludes a
        column of the key.
        """
        found = [self._treatment((schema, table, column)) for column in columns]
        for column, treatment in zip(columns, found, strict=True):
            if treatment is not None and column in key and treatment.action != "hash":
                raise ConfigurationError(
                    f"[policy] would {treatment.action} {schema}.{table}.{column}, a column of the key: rows would fall together",
                    hint='Use action = "hash", which keeps keys apart and joins working, or name the table in exclude_tables.',
                )
        return found

    def _treatment(self, column: tuple[str, str, str]) -> Treatment | None:
        for rule in self._section.columns:
            if _matches(column, rule.columns):
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
