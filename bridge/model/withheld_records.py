"""A withheld record: the records of one table in one batch, as a batch of their own (headrace/batch.py).

The key is the source and the table, `region/name schema.table`; the value is the batch's body, and its properties are headers, as
texts. So it is complete in itself, with the schemas that its records were written with, and its format has the batch's version.
"""

from collections.abc import Sequence

from bridge.model.ports import Share
from headrace.batch import CONTENT_ENCODING, Batch, decode, encode
from headrace.errors import CorruptInput

_NUMBERS = ("version", "count")


def key(source: str, table: str) -> bytes:
    """Return the key of a table's withheld records."""
    return f"{source} {table}".encode()


def share(place: tuple[str, int], parts: Sequence[tuple[str, Batch]]) -> Share:
    """Return what is written for some tables' batches."""
    written = Share(*place, [], [], {})
    assert written.headers is not None
    for index, (table, batch) in enumerate(parts):
        properties, body = encode(batch)
        written.keys.append(key(batch.source, table))
        written.values.append(body)
        written.headers[index] = [(name, str(value).encode()) for name, value in properties.items()]
    return written


def batch_of(headers: Sequence[tuple[str, bytes]] | None, value: bytes | None, where: str) -> Batch:
    """Return the batch of a withheld record; raise CorruptInput, or NeedsOperator for a version that is not read."""
    properties: dict[str, object] = {name: data.decode(errors="replace") for name, data in headers or ()}
    try:
        properties |= {name: int(str(properties.get(name))) for name in _NUMBERS}
        return decode(properties, CONTENT_ENCODING, value or b"")
    except (CorruptInput, ValueError) as error:
        reason = error.message if isinstance(error, CorruptInput) else "its headers are no batch's"
        raise CorruptInput(
            f"{where} holds no withheld record: {reason}", hint="Nobody but bridges may write to that topic."
        ) from error
