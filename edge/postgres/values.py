"""Text values of PostgreSQL as JSON (docs/records.md): one function a kind, from the column's bytes to JSON bytes.

Assumes the session settings of edge/postgres/session.py: ISO dates, UTC, hexadecimal bytea, UTF-8. Raises ValueError for
bytes that the server would not send.
"""

import re
from base64 import b64encode
from binascii import unhexlify
from collections.abc import Callable

from msgspec import json

Convert = Callable[[bytes], bytes]

#: What JSON must escape in a text.
must_escape = re.compile(rb'["\\\x01-\x1f]').search
_special = {b"NaN", b"Infinity", b"-Infinity"}


def text(value: bytes) -> bytes:
    """Return a JSON string."""
    return json.encode(value.decode()) if must_escape(value) else b'"%b"' % value


def number(value: bytes) -> bytes:
    """Return a JSON number; what JSON has no number for as text."""
    return b'"%b"' % value if value in _special else value


def boolean(value: bytes) -> bytes:
    """Return true or false."""
    return b"true" if value == b"t" else b"false"


def timestamp(value: bytes) -> bytes:
    """Return ISO 8601 with a `T`; infinity and dates before year 1 as the server prints them."""
    if value[10:11] == b" " and not value.endswith(b"BC"):
        return b'"%bT%b"' % (value[:10], value[11:])
    return ordinary(value)


def timestamptz(value: bytes) -> bytes:
    """Return ISO 8601 in UTC with `T` and `Z`; infinity and dates before year 1 as the server prints them."""
    if value[10:11] == b" " and value.endswith(b"+00"):
        return b'"%bT%bZ"' % (value[:10], value[11:-3])
    return ordinary(value)


def binary(value: bytes) -> bytes:
    """Return base64."""
    if not value.startswith(b"\\x"):
        raise ValueError("bytea is not in hexadecimal form")
    return b'"%b"' % b64encode(unhexlify(value[2:]))


def ordinary(value: bytes) -> bytes:
    """Return text that can hold nothing to escape."""
    return b'"%b"' % value
