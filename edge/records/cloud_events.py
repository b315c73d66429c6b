"""The headers that make records CloudEvents: version 1.0, Kafka's protocol binding, binary content mode (docs/records.md).

They are made for a whole batch when it is sealed, from its finished records: decoders do nothing for them. A record with a value
and an operation is an event; tombstones, schema records, marks of copies, and where transactions begin and end are none. Nothing
is decoded: table and operation are found by the bytes around them, which no text of a row can hold.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import json

from edge.records.envelope import AVRO_MARK, OLD_KEY
from headrace.batch import Batch, Headers
from headrace.position import commit_text
from headrace.schema import SOURCE, find_names, schema_and_table

#: The type of an event by the operation of its record.
TYPES = {
    b"c": b"headrace.change.create",
    b"u": b"headrace.change.update",
    b"d": b"headrace.change.delete",
    b"r": b"headrace.change.read",
    b"t": b"headrace.change.truncate",
    b"m": b"headrace.message",
}
_MESSAGE_OP = b"m"
#: What follows the position in the id of the create of a changed key, since its delete has the same position.
_CREATE = b"-create"
#: How records with an operation begin in JSON, and what is ahead of the operation, behind the last text of others.
_BEGINNINGS, _MESSAGE, _OP = (b'{"before":', b'{"message":'), b'{"message":', b'"},"op":"'
#: One in Avro begins with five bytes by which the batch knows the table, the length of the operation's text, and that text.
_AVRO_TABLE, _AVRO_OP = 5, 7
_1970 = datetime(1970, 1, 1, tzinfo=UTC)

_Shared = tuple[tuple[str, bytes], ...]


class CloudEvents:
    """Makes the headers of one source's records."""

    def __init__(self, source: str) -> None:
        self._same = (("ce_specversion", b"1.0"), ("ce_source", f"/headrace/{source}".encode()))
        # Subjects of changes by kind. The names of the record before, as it has them, and how far behind its source they begin.
        self._subjects: dict[bytes, bytes] = {}
        self._names, self._ahead = b"", 0

    def headers(self, batch: Batch, times: Sequence[int]) -> Headers:
        """Return the headers of a batch's records, with those that it has; `times`: of each segment's commit, in ms of 1970."""
        headers = dict(batch.headers)
        tables = {each.mark: each.name.encode() for each in batch.written}
        keys, values, begin = batch.keys, batch.values, 0
        # What the events of one kind, of a table and an operation, share in a transaction.
        shared_by_kind: dict[bytes, _Shared] = {}
        shared_ms = -1
        for (commit, ordinal, count), time in zip(batch.segments, times, strict=True):
            if time != shared_ms:
                shared_by_kind, shared_ms = {}, time
            place = b"%08x/%b/" % (batch.last.epoch, commit_text(commit).encode())
            for number in range(begin, begin + count):
                value = values[number]
                if value is None:
                    continue
                if value[0] == AVRO_MARK:
                    kind = value[:_AVRO_OP]
                elif value.startswith(_BEGINNINGS):
                    kind = self._kind(value, keys[number])
                else:
                    continue
                shared = shared_by_kind.get(kind)
                if shared is None:
                    shared = shared_by_kind[kind] = self._shared(kind, time, tables)
                id_ = b"%b%08x" % (place, ordinal + number - begin)
                own = headers.get(number)
                if own is None:
                    headers[number] = [("ce_id", id_), *shared]
                else:
                    if own[0][0] == OLD_KEY:
                        id_ += _CREATE
                    headers[number] = [*own, ("ce_id", id_), *shared]
            begin += count
        return headers

    def _kind(self, value: bytes, key: bytes | None) -> bytes:
        """Return the operation of a record in JSON, and behind it the names as they are in the record; a message's key."""
        at = value.rfind(SOURCE)
        if not self._names or not value.startswith(self._names, at + self._ahead):
            names = find_names(value, at)
            self._names, self._ahead = names[0], names.start() - at
        op = value.rindex(_OP) + len(_OP)
        about = (key or b"") if value.startswith(_MESSAGE) else self._names
        return value[op : op + 1] + about

    def _shared(self, kind: bytes, time: int, tables: dict[bytes, bytes]) -> _Shared:
        """Return what the events of one kind and transaction share."""
        if kind[0] == AVRO_MARK:
            op, subject, form = kind[-1:], tables[kind[:_AVRO_TABLE]], b"application/avro"
        else:
            op, subject, form = kind[:1], self._subject(kind), b"application/json"
        # The specification has no empty subject.
        about = (("ce_subject", subject),) if subject else ()
        return (*self._same, ("ce_type", TYPES[op]), *about, *_time(time), ("content-type", form))

    def _subject(self, kind: bytes) -> bytes:
        """Return the table's name, or the prefix of a message, which its key has."""
        if kind[:1] == _MESSAGE_OP:
            return json.decode(kind[1:], type=dict[str, str])["prefix"].encode()
        subject = self._subjects.get(kind)
        if subject is None:
            subject = self._subjects[kind] = ".".join(schema_and_table(find_names(kind, 0))).encode()
        return subject


def _time(commit_ms: int) -> _Shared:
    try:
        at = (_1970 + timedelta(milliseconds=commit_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        # A server's clock beyond the year 9999: the attribute is optional, and has no form for it.
        return ()
    return (("ce_time", at.encode()),)
