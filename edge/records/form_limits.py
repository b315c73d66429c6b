"""What a form of `[records]` cannot hold: keys that differ, and numbers of more than 64 bits.

Rows of which the keys are written the same are one row for consumers, for a compacted topic, and for a snapshot's window, which
would leave out one of them. So a form that rounds is refused for a column of a key, as a policy that hides it is. What a form has
no value for is a value that cannot be decoded: a dead letter, or with `on_too_large = "stop"` the source stops there, and goes on
from there with another form.
"""

import struct
from collections.abc import Callable, Iterable

from headrace.errors import ConfigurationError, NeedsOperator

Convert = Callable[[bytes], bytes]


class NoForm(NeedsOperator):
    """A value has no form by the configuration, or in this release."""


#: What values raise that have none, or that no server writes.
UNDECODABLE = (struct.error, IndexError, KeyError, ValueError, OverflowError, RecursionError, NoForm)

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
#: Digits that any number of 64 bits may have.
_DIGITS = 18
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
        found = convert(text)
        if found == b"null":
            raise no_value(column)
        return found

    return write


def within_64_bits(convert: Convert, column: str) -> Convert:
    """Return a conversion to a whole number which raises NoForm for one that consumers cannot read."""

    def write(text: bytes) -> bytes:
        found = convert(text)
        if len(found) > _DIGITS and not _LEAST <= int(found) <= _MOST:
            raise NoForm(
                f"{column} has a time before 1678 or after 2261, whose nanoseconds do not fit into 64 bits",
                hint='Set [records] time = "microseconds", or any mode but "nanoseconds".',
            )
        return found

    return write


def no_value(column: str) -> NoForm:
    """Return the error for a value in a key that its form would write as null, or as another value."""
    return NoForm(
        f"{column}, a column of the key, has a value that has no form of its own by [records]: such as NaN or a zero date",
        hint=_OTHER,
    )
