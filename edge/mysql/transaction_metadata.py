"""Records that stand beside changes, or in their place (docs/records.md): where a transaction begins and ends, and dead letters.

Their forms are Debezium's and those of PostgreSQL's edge. Called by edge/mysql/transaction_writer.py.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha256

import msgspec
from msgspec import json

from edge.mysql import envelope
from edge.mysql.envelope import Transaction

_BEFORE, _AFTER = b'{"before":', b',"after":'


class TransactionMetadata:
    """Where a source's transactions begin and end; the records name no table."""

    def __init__(self, shared: envelope.Table) -> None:
        self._shared = shared

    def begin(self, transaction: Transaction, ordinal: int, now_ms: int) -> tuple[bytes, bytes]:
        """Return key and value of the record that goes ahead of a transaction's first change."""
        return self._status(b"BEGIN", b"null", b"null", transaction, ordinal, now_ms)

    def end(
        self, transaction: Transaction, tables: Mapping[str, int], ordinal: int, now_ms: int
    ) -> tuple[bytes, bytes]:
        """Return key and value of a transaction's last record; `tables` tells how many changes each table has."""
        listed = [{"data_collection": table, "event_count": count} for table, count in tables.items()]
        count = b"%d" % sum(tables.values())
        return self._status(b"END", count, json.encode(listed), transaction, ordinal, now_ms)

    def _status(
        self, status: bytes, count: bytes, tables: bytes, transaction: Transaction, ordinal: int, now_ms: int
    ) -> tuple[bytes, bytes]:
        value = b'{"status":"%b","id":%b,"event_count":%b,"data_collections":%b,%b0%b%08x"},"ts_ms":%d}' % (
            status, transaction.id, count, tables, self._shared.middle(transaction), transaction.place, ordinal, now_ms,
        )  # fmt: skip
        return b'{"id":%b}' % transaction.id, value


class _Rows(msgspec.Struct):
    before: msgspec.Raw
    after: msgspec.Raw


def without_row(value: bytes, key: Sequence[str]) -> bytes:
    """Return what stands in the place of a change that is too large: the rows' keys, and what is told of the rest.

    `too_large` tells the value's size, and the SHA-256 of the row's JSON: of the new row, of the old one for a delete.
    """
    rows = json.decode(value, type=_Rows)
    before, after = bytes(rows.before), bytes(rows.after)
    rest = value[len(_BEFORE) + len(before) + len(_AFTER) + len(after) + 1 :]
    digest = sha256(before if after == b"null" else after).hexdigest().encode()
    left = (
        []
        if after == b"null"
        else [name for name in json.decode(after, type=dict[str, msgspec.Raw]) if name not in key]
    )
    unchanged = b'"unchanged":%b,' % json.encode(left) if left else b""
    return b'%b%b%b%b,%b"too_large":{"bytes":%d,"sha256":"%b"},%b' % (
        _BEFORE, _keyed(before, key), _AFTER, _keyed(after, key), unchanged, len(value), digest, rest,
    )  # fmt: skip


def _keyed(row: bytes, key: Sequence[str]) -> bytes:
    """Return a row's key columns alone."""
    if row == b"null":
        return row
    fields = json.decode(row, type=dict[str, msgspec.Raw])
    return json.encode({name: value for name, value in fields.items() if name in key})
