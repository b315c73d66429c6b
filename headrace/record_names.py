"""Where a record names its table: found without decoding the record (docs/records.md).

A record has the names in its `source`, which is behind the rows; a text of a row that holds the same bytes has them escaped.
Called by the bridge for topics of tables, and by the edge for CloudEvents.
"""

import re

from msgspec import DecodeError, json

from headrace.errors import CorruptInput

#: How a record's own `source` begins.
SOURCE = b'"source":{"version":'
#: Names of databases are shorter, in characters.
_LONGEST_NAME = 256
_TEXT = rb'("[^"\\]*(?:\\.[^"\\]*)*")'
_NAMES = re.compile(rb',"schema":' + _TEXT + rb',"table":' + _TEXT)


def find_names(value: bytes, at: int) -> re.Match[bytes]:
    """Return where the names are in a record whose source begins at an index, below 0 for none; CorruptInput without names."""
    names = _NAMES.search(value, at) if at >= 0 else None
    if names is None:
        raise CorruptInput("a record does not name its table", hint="Edges of this release do: upgrade the source's.")
    return names


def schema_and_table(names: re.Match[bytes]) -> tuple[str, str]:
    """Return the names that were found; both are empty for a record that is about no table."""
    try:
        schema, table = json.decode(names[1], type=str), json.decode(names[2], type=str)
        # A half of a surrogate pair is no text, and has no form in UTF-8.
        (schema + table).encode()
    except (DecodeError, UnicodeError) as error:
        raise CorruptInput("the name of a record's table is no text") from error
    if max(len(schema), len(table)) > _LONGEST_NAME:
        raise CorruptInput(f"the name of a record's table has more than {_LONGEST_NAME} characters")
    return schema, table
