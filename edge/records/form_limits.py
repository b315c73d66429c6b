"""What a form of `[records]` cannot hold: keys that differ, numbers of too many bits, and in Avro arrays of arrays.

Rows of which the keys are written the same are one row for consumers, for a compacted topic, and for a snapshot's window, which
would leave out one of them. So a form that rounds is refused for a column of a key, as a policy that hides it is. What a form has
no value for is a value that cannot be decoded: a dead letter, or with `on_too_large = "stop"` the source stops there, and goes on
from there with another form.
"""

import re
import struct
from collections.abc import Callable, Iterable

from msgspec import json

from headrace.errors import ConfigurationError, NeedsOperator

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
