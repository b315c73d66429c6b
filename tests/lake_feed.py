"""A source as the lake sees it: records of docs/records.md, in Kafka transactions, in the source's own partition.

Independent of the edge on purpose: it is written from the page, so the two check each other.
"""

import json
from collections.abc import Sequence
from typing import Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.waiting import eventually

Row = dict[str, Any]
EPOCH = 0x692010C0

#: Name to (type, length, scale).
ACCOUNTS = {"id": ("int8", None, None), "name": ("text", None, None), "balance": ("numeric", 10, 2)}


class Feed:
    """Commits transactions of one source."""

    def __init__(self, bootstrap: str, topic: str, source: str = "jakarta/bank", partition: int = 0) -> None:
        self.topic, self.source = topic, source
        self._partition = partition
        self._lsn = 0x1A00000
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": f"feed.{topic}.{source}",
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        self._producer.init_transactions(30)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._ordinal = self._at = 0
        self._keys: dict[str, tuple[str, ...]] = {}

    def schema(
        self, columns: dict[str, Any] = ACCOUNTS, key: Sequence[str] = ("id",), table: str = "public.accounts"
    ) -> Row:
        """Return a schema record, which goes ahead of the next change given to `commit`."""
        self._keys[table] = tuple(key)
        described = [
            {"name": n, "typeName": t, "length": length, "scale": s, "position": i, "optional": n not in key}
            for i, (n, (t, length, s)) in enumerate(columns.items(), 1)
        ]
        schema, _, name = table.partition(".")
        change = {
            "type": "CREATE",
            "id": f'"{schema}"."{name}"',
            "table": {"primaryKeyColumnNames": list(key), "columns": described},
        }
        return {"_table": table, "databaseName": "bank", "schemaName": schema, "ddl": None, "tableChanges": [change]}

    def insert(self, table: str = "public.accounts", **row: Any) -> Row:
        """Return an insert."""
        return {"_table": table, "_key": row, "before": None, "after": row, "op": "c"}

    def read(self, table: str = "public.accounts", **row: Any) -> Row:
        """Return a row that a snapshot read, as it stood at its position."""
        return {"_table": table, "_key": row, "before": None, "after": row, "op": "r"}

    def update(
        self, table: str = "public.accounts", *, before: Row | None = None, unchanged: Sequence[str] = (), **row: Any
    ) -> Row:
        """Return an update; `before` holds the old key, or the whole old row."""
        lacking = {"unchanged": list(unchanged)} if unchanged else {}
        return {"_table": table, "_key": row, "before": before, "after": row, "op": "u"} | lacking

    def delete(self, table: str = "public.accounts", **before: Any) -> Row:
        """Return a delete, of a key or of a whole old row."""
        return {"_table": table, "_key": before, "before": before, "after": None, "op": "d"}

    def truncate(self, table: str = "public.accounts") -> Row:
        """Return a truncate."""
        return {"_table": table, "before": None, "after": None, "op": "t"}

    def commit(self, *changes: Row, ends: bool = True, abort: bool = False, at: int = 1769850900250) -> str:
        """Commit one transaction of the source in one of Kafka; return the position of its last change.

        It committed at the source `at` milliseconds since 1970.
        Without `ends` the transaction's last change has not arrived yet: the next commit goes on with it.
        """
        self._producer.begin_transaction()
        self._at = at
        position = ""
        rows = [change for change in changes if "op" in change]
        for change in changes:
            if "op" in change:
                position = f"{EPOCH:08x}/{self._lsn:016x}/{self._ordinal:08x}"
                self._produce(change, position, last=ends and change is rows[-1])
                self._ordinal += 1
            else:
                self._produce(change, f"{EPOCH:08x}/{self._lsn:016x}/{self._ordinal:08x}", last=False)
        if ends:
            self._lsn += 0x1000
            self._ordinal = 0
        if abort:
            self._producer.flush(30)
            self._producer.abort_transaction(30)
        else:
            self._producer.commit_transaction(30)
        self._wait_until_readable()
        return position

    def raw(self, value: bytes, key: bytes | None = None) -> None:
        """Commit a value as it is."""
        self._producer.begin_transaction()
        self._producer.produce(self.topic, value, key, self._partition)
        self._producer.commit_transaction(30)
        self._wait_until_readable()

    def _wait_until_readable(self) -> None:
        """Wait for the transaction's marker: a commit returns before it is written, and readers see nothing until then."""

        def end(isolation: IsolationLevel) -> int:
            place = TopicPartition(self.topic, self._partition)
            asked = self._admin.list_offsets(
                {place: OffsetSpec.latest()}, isolation_level=isolation, request_timeout=30
            )
            return asked[place].result().offset

        eventually(
            lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED),
            60,
            saying="the transaction is over for readers",
        )

    def _produce(self, change: Row, position: str, *, last: bool) -> None:
        schema, _, name = change["_table"].partition(".")
        lsn = int(position.split("/")[1], 16)
        source = {"version": "0.1.0", "connector": "postgresql", "name": self.source, "ts_ms": self._at}
        snapshot = "incremental" if change.get("op") == "r" else "false"
        source |= {"snapshot": snapshot, "db": "bank", "schema": schema, "table": name, "txId": 761, "lsn": lsn}
        source |= {"position": position}
        keys = self._keys[change["_table"]]
        value = {
            k: v for k, v in change.items() if not k.startswith("_") and k not in {"op", "tableChanges", "unchanged"}
        }
        if "op" in change:
            transaction = {"id": f"761:{lsn}", "total_order": self._ordinal + 1} | ({"last": True} if last else {})
            value |= {"source": source, "op": change["op"], "ts_ms": 1769850900261, "transaction": transaction}
            value |= {"unchanged": change["unchanged"]} if "unchanged" in change else {}
        else:
            value = {"source": source, "ts_ms": 1769850900261} | value | {"tableChanges": change["tableChanges"]}
        key = None
        if change.get("_key") and keys:
            key = _json({name: change["_key"][name] for name in keys})
        self._producer.produce(self.topic, _json(value), key, self._partition)


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
