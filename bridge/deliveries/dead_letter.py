"""A dead letter of a delivery: the record as it was, with headers that say where it came from and why it is here. Pure."""

import datetime as dt

from bridge.deliveries.pending import Entry
from bridge.deliveries.record import Headers

#: What the names of the added headers begin with.
PREFIX = "headrace."


def headers(entry: Entry, now: dt.datetime) -> list[tuple[str, bytes | None]]:
    """Return the headers of a dead letter: the record's own, then ours.

    Ours replace those of an earlier dead letter, where one was produced to the topic again.
    """
    record = entry.record
    own: Headers = tuple(header for header in record.headers if not header[0].startswith(PREFIX))
    added = {
        "id": record.id,
        "topic": record.topic,
        "partition": str(record.partition),
        "offset": str(record.offset),
        "address": entry.address,
        "condition": entry.condition,
        "description": entry.description,
        "sends": str(entry.sends),
        "at": now.isoformat(timespec="milliseconds"),
    }
    return [*own, *((PREFIX + name, value.encode()) for name, value in added.items())]
