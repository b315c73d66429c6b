"""The headers that make records CloudEvents: version 1.0, Kafka's protocol binding, binary content mode (docs/records.md).

They are made for a whole batch when it is sealed, from its finished records: decoders do nothing for them. A record with a value
and an operation is an event; tombstones, schema records, marks of copies, and where transactions begin and end are none. Nothing
is decoded: table and operation are found by the bytes around them, which no text of a row can hold.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from msgspec import json

from edge.records.envelope import AVRO_MARK
from edge.records.transaction_writer import OLD_KEY
from headrace.batch import Batch, Headers
from headrace.record_names import SOURCE, find_names, schema_and_table

#: The type of an event by the operation of its record.
TYPES = {
    ord(op): kind.encode()
    for op, kind in {
        "c": "headrace.change.create",
        "u": "headrace.change.update",
        "d": "headrace.change.delete",
        "r": "headrace.change.read",
        "t": "headrace.change.truncate",
        "m": "headrace.message",
    }.items()
}
#: What follows the position in the id of the create of a changed key, since its delete has the same position.
_CREATE = b"-create"
#: How records with an operation begin in JSON, and what is ahead of the operation, behind the source. In Avro it is the first
#: field: a text, behind the five bytes by which the batch knows the table, and the text's length.
_BEGINNINGS, _MESSAGE = (b'{"before":', b'{"message":'), b'{"m'
_OP, _AVRO_OP = b'"},"op":"', 6
_1970 = datetime(1970, 1, 1, tzinfo=UTC)

_Header = tuple[str, bytes]


class CloudEvents:
    """Makes the headers of one source's records."""

    def __init__(self, source: str) -> None:
        self._same: tuple[_Header, ...] = (("ce_specversion", b"1.0"), ("ce_source", f"/headrace/{source}".encode()))
        # Subjects by the names as they are in a record; the names of the record before, and how far behind its source they begin.
        self._subjects: dict[bytes, bytes] = {}
        self._names, self._ahead = b"", 0

    def headers(self, batch: Batch, times: Sequence[int]) -> Headers:
        """Return the headers of a batch's records, with those that it has; `times`: of each segment's commit, in ms of 1970."""
        found = dict(batch.headers)
        tables = {_avro_head(each.number): _subject(each.schema, each.table) for each in batch.written}
        shared: dict[tuple[int, bytes, int, bytes], tuple[_Header, ...]] = {}
        keys, values, begin = batch.keys, batch.values, 0
        for (commit, ordinal, count), time in zip(batch.segments, times, strict=True):
            place = b"%08x/%016x/" % (batch.last.epoch, commit)
            for number in range(begin, begin + count):
                value = values[number]
                if value is None:
                    continue
                if value[0] == AVRO_MARK:
                    op, subject, form = value[_AVRO_OP], tables[value[:5]], b"application/avro"
                elif value.startswith(_BEGINNINGS):
                    op, subject = self._found(value, keys[number])
                    form = b"application/json"
                else:
                    continue
                what = (op, subject, time, form)
                same = shared.get(what)
                if same is None:
                    same = shared[what] = self._shared(*what)
                id_ = b"%b%08x" % (place, ordinal + number - begin)
                own = found.get(number)
                if own is None:
                    found[number] = [("ce_id", id_), *same]
                else:
                    if own[0][0] == OLD_KEY:
                        id_ += _CREATE
                    found[number] = [*own, ("ce_id", id_), *same]
            begin += count
        return found

    def _found(self, value: bytes, key: bytes | None) -> tuple[int, bytes]:
        """Return the operation of a record in JSON, and its subject."""
        at = value.rfind(SOURCE)
        if not self._names or not value.startswith(self._names, at + self._ahead):
            names = find_names(value, at)
            self._names, self._ahead = names[0], names.start() - at
            if self._names not in self._subjects:
                self._subjects[self._names] = _subject(*schema_and_table(names))
        op = value[value.index(_OP, at) + len(_OP)]
        return op, _prefix(key) if value.startswith(_MESSAGE) else self._subjects[self._names]

    def _shared(self, op: int, subject: bytes, time: int, form: bytes) -> tuple[_Header, ...]:
        """Return what events of one kind, subject and transaction share."""
        at = (_1970 + timedelta(milliseconds=time)).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        # The specification has no empty subject.
        about = (("ce_subject", subject),) if subject else ()
        return (*self._same, ("ce_type", TYPES[op]), *about, ("ce_time", at.encode()), ("content-type", form))


def _avro_head(number: int) -> bytes:
    return bytes([AVRO_MARK]) + number.to_bytes(4, "big")


def _subject(schema: str, table: str) -> bytes:
    return f"{schema}.{table}".encode()


def _prefix(key: bytes | None) -> bytes:
    """Return the prefix of a logical message, which its key has."""
    return json.decode(key or b'{"prefix":""}', type=dict[str, str])["prefix"].encode()
