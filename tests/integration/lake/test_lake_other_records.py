"""Records that are no changes of rows leave silver right: messages, transactions, tombstones, and dead letters."""

import json
from decimal import Decimal

from spark_jobs.query import published_tables
from tests.lake.feed import EPOCH


def rows(spark, lake, *columns):
    frame = published_tables.frame(spark, lake, "bank", "public.accounts")
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=lambda row: row[0])


def beside(source, ordinal, **fields):
    """A record that is about no table, at a place in the transaction that comes next."""
    position = f"{EPOCH:08x}/{source._lsn:016x}/{ordinal:08x}"
    origin = {"name": source.source, "schema": "", "table": "", "ts_ms": 1769850900250, "position": position}
    return json.dumps({"source": origin, **fields}).encode()


def test_messages_transaction_records_tombstones_and_dead_letters_leave_rows_right(spark, feed, lake_file, loaded):
    # given a transaction with everything in it, whose last record is a message
    source = feed()
    lake = lake_file(bank=source.topic)
    source.raw(beside(source, 0, status="BEGIN", id="1:1", event_count=None, data_collections=None), b'{"id":"1:1"}')
    source.commit(
        source.schema(),
        source.insert(id=1, name="large", balance="1.00"),
        source.insert(id=2, name="b", balance="NaN"),
        source.insert(id=3, name="c", balance="3.00"),
        source.delete(id=3),
        ends=False,
    )
    source.raw(None, b'{"id":3}')
    transaction = {"id": "1:1", "total_order": 5, "last": True}
    message = {"message": {"prefix": "outbox", "content": "cGFpZA=="}, "op": "m", "transaction": transaction}
    source.raw(beside(source, 4, **message), b'{"prefix":"outbox"}')
    source.raw(beside(source, 5, status="END", id="1:1", event_count=5, data_collections=[]), b'{"id":"1:1"}')
    # when
    report = loaded(lake)
    # then
    assert (report.problems, report.waiting) == ({}, {})
    assert rows(spark, lake, "id", "name", "balance", "_nan") == [
        (1, "large", Decimal("1.00"), None),
        (2, "b", None, ["balance"]),
    ]
    # and when dead letters follow, in a later transaction
    source.commit(*(source.update(id=number, unchanged=["name", "balance"]) for number in (1, 2)))
    source.commit(
        source.insert(id=5, name="e", balance="5.00") | {"after": {"id": 5}, "unchanged": ["name", "balance"]}
    )
    loaded(lake)
    # then the rows are as they were before, and one that was never seen whole is there by its key
    assert rows(spark, lake, "id", "name", "balance", "_nan") == [
        (1, "large", Decimal("1.00"), None),
        (2, "b", None, ["balance"]),
        (5, None, None, None),
    ]
    # and a message alone moves nothing but the stream
    source._lsn += 0x1000
    outside = {"message": {"prefix": "outbox", "content": "YQ=="}, "op": "m", "transaction": None}
    source.raw(beside(source, 0, **outside), b'{"prefix":"outbox"}')
    report = loaded(lake)
    assert (report.problems, report.waiting, report.changes) == ({}, {}, {})
