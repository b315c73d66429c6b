"""The envelope around a row (docs/records.md): the parts that are the same for every change are made once.

A record is `{"before":B,"after":A,"source":{...,"position":"epoch/commit/ordinal"},"op":"u","ts_ms":T,"transaction":{...}}`.
"""

from msgspec import json

from headrace import __version__


class Transaction:
    """What all records of one transaction share."""

    def __init__(self, *, epoch: int, commit: int, commit_ms: int, xid: int) -> None:
        self.commit_ms = commit_ms
        self._xid = xid
        self._commit = commit
        self._place = b"%08x/%016x/" % (epoch, commit)

    def source(self, constant: bytes, table: bytes) -> bytes:
        """Return the source object of a relation's records, up to the position's ordinal."""
        return b'"source":{%b,"ts_ms":%d,"snapshot":"false",%b,"txId":%d,"lsn":%d,"position":"%b' % (
            constant,
            self.commit_ms,
            table,
            self._xid,
            self._commit,
            self._place,
        )

    def tail(self, now_ms: int) -> bytes:
        """Return what comes after `op`, up to the change's number in the transaction."""
        return b',"ts_ms":%d,"transaction":{"id":"%d:%d","total_order":' % (now_ms, self._xid, self._commit)


def constant(source: str) -> bytes:
    """Return what all records of a source share."""
    return b'"version":%b,"connector":"postgresql","name":%b' % (json.encode(__version__), json.encode(source))


def table(database: str, schema: str, name: str) -> bytes:
    """Return what all records of a table share."""
    return b'"db":%b,"schema":%b,"table":%b' % (json.encode(database), json.encode(schema), json.encode(name))
