"""What of a table leaves the region: the tables and columns that the policy admits, and values that have a form by `[records]`.

Engine-neutral: a rule's function goes from a value's text, as the engine's log gives it, to the text that leaves. Nulls stay
null. Asked when a table is announced; the functions run for each value.

Rows of which the keys are written the same are one row for consumers, for a compacted topic, and for a snapshot's window, which
would leave out one of them. So a rule that hides a column of a key is refused, and so is a form that rounds it. What a form has
no value for is a value that cannot be decoded: a dead letter, or with `on_too_large = "stop"` the source stops there, and goes on
from there with another form.

PostgreSQL distinguishes names by case. MariaDB and MySQL do so for no column, and for tables on some servers: there rules for
columns and excluded tables hold in any case, so that a name in another case is no way out.
"""

import hmac
import re
import struct
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, Self

from msgspec import json

from headrace.configuration.edge import ColumnRule, EdgeFile
from headrace.configuration.edge import Policy as Section
from headrace.errors import ConfigurationError, NeedsOperator

#: A key that is too short can be found by trying, and with it the values.
_SHORTEST_KEY = 16
#: So many patterns are named; of more there is a count.
_NAMED = 10


class Treatment(NamedTuple):
    """What is done to a column."""

    #: The rule's word for it.
    action: str
    #: From a value's text to the text that leaves; None for a column that does not leave at all.
    hide: Callable[[bytes], bytes] | None


class LeftOut(NeedsOperator):
    """No rows of a table may leave: a rule would make two of them one."""


class PolicyTable(NamedTuple):
    """A table of the catalog, for which rules may be."""

    schema: str
    name: str
    columns: Sequence[str]
    key: Sequence[str] = ()


class Policy:
    """The section `[policy]`, ready for use. Raises ConfigurationError for a hash key that is missing or too short."""

    def __init__(self, section: Section, *, any_case: bool = False, left_out: dict[str, str] | None = None) -> None:
        """`any_case`: the database does not distinguish names of columns by case.

        `left_out` receives, by `schema.table`, why a table that is announced does not leave.
        """
        self._left_out = {} if left_out is None else left_out
        self._section = section
        self._any_case = any_case
        self._hash = _make_hash(section) if section.hash_key is not None else None

    @classmethod
    def of(cls, config: EdgeFile, left_out: dict[str, str] | None = None) -> Self:
        """Return the policy of an edge."""
        return cls(config.policy, any_case=config.source.postgresql is None, left_out=left_out)

    @property
    def has_rules(self) -> bool:
        """Whether there is any pattern."""
        return bool(self._section.include_tables or self._section.exclude_tables or self._section.columns)

    def admits(self, schema: str, table: str, above: Sequence[tuple[str, str]] | None = ()) -> bool:
        """Whether changes of a table leave the region.

        `above` are the tables that it is a partition of, whose rules are its own too; None where that is not known: then a table
        may be one of those that stay.
        """
        names = [(schema, table), *(above or ())]
        included, excluded = self._section.include_tables, self._section.exclude_tables
        if above is None and excluded:
            return False
        return (not included or any(_matches(name, included) for name in names)) and not any(map(self._excludes, names))

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
        rules of a column's name hold, whatever their table. Raises LeftOut when a rule would make two rows of the table one: when
        it masks, truncates or excludes a column of the key.
        """
        names = None if above is None else [(schema, table), *above]
        treatments = [self._treatment(names, column) for column in columns]
        for column, treatment in zip(columns, treatments, strict=True):
            if treatment is not None and column in key and treatment.action != "hash":
                problem = LeftOut(
                    f"{schema}.{table} is left out: [policy] would {treatment.action} {column}, a column of its key, and rows "
                    "would fall together",
                    hint='Use action = "hash", which keeps keys apart and joins working, or name the table in exclude_tables. '
                    "Then start the edge again, and copy the table.",
                )
                self._left_out[f"{schema}.{table}"] = problem.message
                raise problem
        self._left_out.pop(f"{schema}.{table}", None)
        return treatments

    def unused(self, tables: Iterable[PolicyTable]) -> list[str]:
        """Return the patterns that match none of these tables and their columns, as the file has them."""
        section = self._section
        of_tables = dict.fromkeys([*section.include_tables, *section.exclude_tables])
        of_columns = dict.fromkeys(pattern for rule in section.columns for pattern in rule.columns)
        for table in tables:
            name = (table.schema, table.name)
            for pattern in [each for each in of_tables if self._applies(name, each)]:
                del of_tables[pattern]
            for pattern in [each for each in of_columns if self._applies(name, each.rpartition(".")[0])]:
                if any(self._applies((*name, column), pattern) for column in table.columns):
                    del of_columns[pattern]
            if not of_tables and not of_columns:
                break
        return [*of_tables, *of_columns]

    def _applies(self, name: tuple[str, ...], pattern: str) -> bool:
        return _matches(name, [pattern], any_case=self._any_case and pattern not in self._section.include_tables)

    def _excludes(self, name: tuple[str, str]) -> bool:
        return _matches(name, self._section.exclude_tables, any_case=self._any_case)

    def _treatment(self, tables: Sequence[tuple[str, str]] | None, column: str) -> Treatment | None:
        """Return what the first rule does that matches a column of one of these tables; of any table for None."""
        for rule in self._section.columns:
            if (
                _matches((column,), [pattern.split(".")[-1] for pattern in rule.columns], any_case=self._any_case)
                if tables is None
                else any(_matches((*table, column), rule.columns, any_case=self._any_case) for table in tables)
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


def _matches(name: tuple[str, ...], patterns: Sequence[str], *, any_case: bool = False) -> bool:
    """Whether a name matches one of the patterns, part by part, so that `*` does not reach into the next part."""
    form = _fold if any_case else str
    return any(
        all(fnmatchcase(form(part), form(wild)) for part, wild in zip(name, pattern.split("."), strict=True))
        for pattern in patterns
    )


def _fold(name: str) -> str:
    """Return a name without case and accents, neither of which MariaDB and MySQL distinguish in names of columns."""
    parts = unicodedata.normalize("NFKD", name.casefold())
    return "".join(each for each in parts if not unicodedata.combining(each))


def unused_words(patterns: Sequence[str]) -> str:
    """Return what an operator is to know of patterns that match nothing; empty when there are none."""
    more = f" and {len(patterns) - _NAMED} more" if len(patterns) > _NAMED else ""
    listed = ", ".join(patterns[:_NAMED]) + more
    return f"[policy] has rules without effect, which match no captured table or column: {listed}" if patterns else ""


def _readings(name: str) -> list[tuple[str, str]]:
    """Return each schema and table that a joined name may be of: names may have dots of their own."""
    return [(name[:at], name[at + 1 :]) for at, letter in enumerate(name) if letter == "."]


def _make_hash(section: Section) -> Callable[[bytes], bytes]:
    assert section.hash_key is not None
    key = section.hash_key.reveal().encode()
    if len(key) < _SHORTEST_KEY:
        raise ConfigurationError(
            f"the secret behind [policy] hash_key has {len(key)} bytes, at least {_SHORTEST_KEY} are needed",
            hint="Make one with 'openssl rand -hex 32', and give every region whose hashes are to join the same one.",
        )
    return lambda text: hmac.digest(key, text, "sha256").hex().encode()


Convert = Callable[[bytes], bytes]


class NoForm(NeedsOperator):
    """A value has no form by the configuration, or in this release."""


#: What values raise that have none, or that no server writes.
UNDECODABLE = (struct.error, IndexError, KeyError, ValueError, OverflowError, RecursionError, NoForm)

#: Characters of a number that any number of so many bits may have.
_SURELY = {32: 9, 64: 18}
_LONG_NUMBER = re.compile(rb"\d{19}")
_OTHER = "Set that option otherwise (docs/types.md lists which forms are exact), or name the table in [policy] exclude_tables."


def check_keys_differ(table: str, rounded: Iterable[tuple[str, str | None]]) -> None:
    """Check the columns of a key, each with the setting of `[records]` that rounds its values, None where none does.

    Raises ConfigurationError.
    """
    for column, setting in rounded:
        if setting is not None:
            raise ConfigurationError(
                f"[records] {setting} would write different values of {table}.{column}, a column of the key, as the same one",
                hint=_OTHER,
            )


def never_null(convert: Convert, column: str) -> Convert:
    """Return the conversion of a key's column, `schema.table.column`, which raises NoForm in place of null."""

    def write(text: bytes) -> bytes:
        json_text = convert(text)
        if json_text == b"null":
            raise no_value(column)
        return json_text

    return write


def within(bits: int, convert: Convert, column: str) -> Convert:
    """Return a conversion to a whole number which raises NoForm for one that does not fit into so many bits."""
    least, most = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def write(text: bytes) -> bytes:
        number = convert(text)
        if len(number) > _SURELY[bits] and not least <= int(number) <= most:
            raise NoForm(
                f"{column} has a time before 1678 or after 2261 in nanoseconds, or another value whose number does not fit "
                f"into {bits} bits",
                hint='Set [records] time = "microseconds", or "isostring" for years from 294247 on, and interval = "string" '
                "for one of intervals.",
            )
        return number

    return write


def flat(convert: Convert, column: str) -> Convert:
    """Return a conversion to an array which raises NoForm for what Avro has no form for.

    That is an array of arrays, what is no array, and a whole number of more than 64 bits.
    """

    def write(text: bytes) -> bytes:
        array = convert(text)
        is_unusual = array.find(b"[", 1) > 0 or _LONG_NUMBER.search(array) is not None
        if array[:1] != b"[" or (is_unusual and not all(map(_is_element, json.decode(array)))):
            raise NoForm(
                f"{column} has an array of arrays or of numbers beyond 64 bits, or none, which has no form in Avro",
                hint='Set [records] types = "headrace", which writes arrays as text, or exclude the column by [policy].',
            )
        return array

    return write


def _is_element(value: object) -> bool:
    """Return whether Avro has a form for an element of an array."""
    return not isinstance(value, list) and (not isinstance(value, int) or -(1 << 63) <= value < 1 << 63)


def no_value(column: str) -> NoForm:
    """Return the error for a value in a key that its form would write as null, or as another value."""
    return NoForm(
        f"{column}, a column of the key, has a value that has no form of its own by [records]: such as NaN or a zero date",
        hint=_OTHER,
    )
