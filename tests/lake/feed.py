"""A source as the lake sees it: records of docs/records.md, in Kafka transactions, in the source's own partition.

Independent of the edge on purpose: it is written from the page, so the two check each other.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import Consumer, IsolationLevel, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.rules.waiting import eventually

Row = dict[str, Any]
EPOCH = 0x692010C0

#: Name to (type, length, scale).
ACCOUNTS = {"id": ("int8", None, None), "name": ("text", None, None), "balance": ("numeric", 10, 2)}


class Feed:
    """Commits transactions of one source; with a topic for each table, as a bridge does, its position with them."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        source: str = "jakarta/bank",
        partition: int = 0,
        *,
        topic_per_table: bool = False,
    ) -> None:
        self.topic, self.source = topic, source
        self._bootstrap, self._per_table = bootstrap, topic_per_table
        #: Topics that were written to, and what is kept back of them.
        self._topics = {topic}
        self._records: list[tuple[str, bytes, bytes | None]] = []
        self._withheld: list[tuple[str, bytes, bytes | None]] = []
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
        self._producer.init_transactions(60)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._ordinal = self._at = 0
        self._keys: dict[str, tuple[str, ...]] = {}

    def schema(
        self, columns: dict[str, Any] = ACCOUNTS, key: Sequence[str] = ("id",), table: str = "public.accounts"
    ) -> Row:
        """Return a schema record, which goes ahead of the next change given to `commit`."""
        self._keys.setdefault(table, tuple(key))
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

    def has_no_schema(self, table: str) -> None:
        """Let a table send what is no row without a schema record ahead of it."""
        self._keys[table] = ()

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

    def copy_begins(self, *schema: Any, **of: Any) -> Row:
        """Return the mark ahead of a whole table's copy; arguments as those of `schema`."""
        return self.schema(*schema, **of) | {"_mark": "first_in_data_collection"}

    def copy_ends(self, *schema: Any, **of: Any) -> Row:
        """Return the mark behind a whole table's copy."""
        return self.schema(*schema, **of) | {"_mark": "last_in_data_collection"}

    def commit(
        self, *changes: Row, ends: bool = True, abort: bool = False, at: int = 1769850900250, without: str = ""
    ) -> str:
        """Commit one transaction of the source in one of Kafka; return the position of its last change.

        It committed at the source `at` milliseconds since 1970.
        Without `ends` the transaction's last change has not arrived yet: the next commit goes on with it. Changes of the table
        that it is `without`, and the source's position, are kept back until `release`.
        """
        self._begin()
        self._at = at
        position = ""
        rows = [change for change in changes if "op" in change or "_mark" in change]
        for change in changes:
            if "op" in change or "_mark" in change:
                position = self._position()
                self._produce(change, position, last=ends and change is rows[-1])
                self._ordinal += 1
            else:
                self._produce(change, self._position(), last=False)
        if without:
            kept = f"{self.topic}.{without}"
            self._withheld = [record for record in self._records if record[0] == kept]
            self._records = [record for record in self._records if record[0] != kept]
        if ends:
            self._lsn += 0x1000
            self._ordinal = 0
        self._end(position if self._per_table and not without else "", abort=abort)
        return position

    def release(self, position: str) -> None:
        """Commit what was kept back, and the source's position."""
        self._producer.begin_transaction()
        self._records, self._withheld = self._withheld, []
        self._end(position)

    def goes_on_at(self, lsn: int) -> None:
        """Let what comes now commit from an LSN on."""
        self._lsn = lsn

    def _position(self) -> str:
        """Return the position of the next change; one above 64 bits has a wider text behind an x."""
        commit = f"{self._lsn:016x}" if self._lsn < 1 << 64 else f"x{self._lsn:032x}"
        return f"{EPOCH:08x}/{commit}/{self._ordinal:08x}"

    def _begin(self) -> None:
        self._producer.begin_transaction()

    def _end(self, position: str, *, abort: bool = False) -> None:
        for topic, value, key in self._records:
            self._topics.add(topic)
            self._producer.produce(topic, value, key, self._partition)
        self._records = []
        if abort:
            self._producer.flush(60)
            self._producer.abort_transaction(60)
        else:
            if position:
                self._commit_position(position)
            self._producer.commit_transaction(60)
        self._wait_until_readable()

    def _commit_position(self, position: str) -> None:
        member = Consumer({"bootstrap.servers": self._bootstrap, "group.id": f"headrace.{self.source}", "log_level": 0})
        place = TopicPartition(
            self.topic, self._partition, 1, metadata=f"{position} {datetime.now(UTC).isoformat()} feed"
        )
        self._producer.send_offsets_to_transaction([place], member.consumer_group_metadata(), 60)
        member.close()

    def raw(self, value: bytes, key: bytes | None = None) -> None:
        """Commit a value as it is."""
        self._producer.begin_transaction()
        self._producer.produce(self.topic, value, key, self._partition)
        self._producer.commit_transaction(60)
        self._wait_until_readable()

    def _wait_until_readable(self) -> None:
        """Wait for the transaction's marker: a commit returns before it is written, and readers see nothing until then."""

        def end(isolation: IsolationLevel) -> dict[str, int]:
            places = {TopicPartition(topic, self._partition): OffsetSpec.latest() for topic in self._topics}
            asked = self._admin.list_offsets(places, isolation_level=isolation, request_timeout=60)
            return {place.topic: answer.result().offset for place, answer in asked.items()}

        eventually(
            lambda: end(IsolationLevel.READ_COMMITTED) == end(IsolationLevel.READ_UNCOMMITTED),
            60,
            saying="the transaction is over for readers",
        )

    def _produce(self, change: Row, position: str, *, last: bool) -> None:
        for table in change.get("tableChanges", ()):
            self._keys[change["_table"]] = tuple(table["table"]["primaryKeyColumnNames"])
        schema, _, name = change["_table"].partition(".")
        lsn = int(position.split("/")[1].removeprefix("x"), 16)
        source = {"version": "0.1.0", "connector": "postgresql", "name": self.source, "ts_ms": self._at}
        snapshot = change.get("_mark", "incremental" if change.get("op") == "r" else "false")
        source |= {"snapshot": snapshot, "db": "bank", "schema": schema, "table": name, "txId": 761, "lsn": lsn}
        source |= {"position": position}
        keys = self._keys[change["_table"]]
        value = {
            k: v for k, v in change.items() if not k.startswith("_") and k not in {"op", "tableChanges", "unchanged"}
        }
        transaction = {"id": f"761:{lsn}", "total_order": self._ordinal + 1} | ({"last": True} if last else {})
        if "_mark" in change:
            value |= {"source": source, "ts_ms": 1769850900261, "transaction": transaction}
            value |= {"tableChanges": change["tableChanges"]}
        elif "op" in change:
            value |= {"source": source, "op": change["op"], "ts_ms": 1769850900261, "transaction": transaction}
            value |= {"unchanged": change["unchanged"]} if "unchanged" in change else {}
        else:
            value = {"source": source, "ts_ms": 1769850900261} | value | {"tableChanges": change["tableChanges"]}
        key = None
        if change.get("_key") and keys:
            key = _json({name: change["_key"][name] for name in keys})
        of_table = self._per_table and "op" in change
        self._records.append((f"{self.topic}.{change['_table']}" if of_table else self.topic, _json(value), key))


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
