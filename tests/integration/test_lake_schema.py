"""Silver follows a table through every change of its schema, and records that are no changes of rows do not disturb it."""

import json
from decimal import Decimal

from spark_jobs.query import published_tables
from tests.lake_feed import EPOCH

FIRST = {
    "id": ("int4", None, None), "a": ("int4", None, None), "amount": ("numeric", 5, 1), "note": ("varchar", 9, None),
    "gone": ("text", None, None),
}  # fmt: skip


def rows(spark, lake, *columns):
    frame = published_tables.frame(spark, lake, "bank", "public.accounts")
    return sorted((tuple(row) for row in frame.select(*columns).collect()), key=lambda row: row[0])


def test_table_that_is_altered_again_and_again_keeps_what_it_had(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(
        source.schema(FIRST),
        source.insert(id=1, a=10, amount="1.5", note="n", gone="g"),
        source.insert(id=2, a=20, amount="2.5", note="n", gone="g"),
    )
    loaded(lake)
    # when columns are widened, reordered, renamed (a to b) and dropped, with rows written between, within one load
    second = {"amount": ("numeric", 12, 3), "note": ("text", None, None), "id": ("int8", None, None)}
    second |= {"b": ("int4", None, None), "gone": ("text", None, None)}
    source.commit(
        source.schema(second), source.insert(id=3, b=30, amount="123456789.125", note="a longer one", gone="g")
    )
    third = {name: kind for name, kind in second.items() if name != "gone"} | {"extra": ("int4", None, None)}
    source.commit(
        source.insert(id=4, b=40, amount="4", note="n", gone="g"),
        source.schema(third),
        source.update(id=2, b=21, amount="2.5", note="n", extra=5),
        source.insert(id=2**40, b=50, amount="5", note=None, extra=6),
    )
    report = loaded(lake)
    # then what was dropped stays readable in rows that were not written since
    assert report.problems == {}
    assert rows(spark, lake, "id", "a", "b", "amount", "note", "gone", "extra") == [
        (1, 10, None, Decimal("1.500"), "n", "g", None),
        (2, None, 21, Decimal("2.500"), "n", None, 5),
        (3, None, 30, Decimal("123456789.125"), "a longer one", "g", None),
        (4, None, 40, Decimal("4.000"), "n", "g", None),
        (2**40, None, 50, Decimal("5.000"), None, None, 6),
    ]
    # and when it is dropped and made anew, by truncating it in the log's eyes, and a number is none
    source.commit(source.truncate(), source.schema(third), source.insert(id=9, b=90, amount="NaN", note="n", extra=7))
    source.commit(source.insert(id=8, b=80, amount="8", note="n", extra=7))
    loaded(lake)
    assert rows(spark, lake, "id", "amount", "_nan") == [(8, Decimal("8.000"), None), (9, None, ["amount"])]
    source.commit(source.update(id=9, b=90, amount="9", note="n", extra=7))
    loaded(lake)
    assert rows(spark, lake, "id", "amount", "_nan") == [(8, Decimal("8.000"), None), (9, Decimal("9.000"), None)]
    # and when a column becomes something else, that table stops, alone, and says what to do
    source.commit(source.schema(third | {"b": ("date", None, None)}), source.insert(id=10, b="2026-01-31", amount="1"))
    source.commit(source.schema(table="public.other"), source.insert("public.other", id=1, name="n", balance="1"))
    report = loaded(lake)
    assert list(report.problems) == ["public.accounts"]
    assert "column b is" in report.problems["public.accounts"]
    assert "headrace lake rebuild" in report.problems["public.accounts"]
    assert rows(spark, lake, "id") == [(8,), (9,)]
    assert published_tables.frame(spark, lake, "bank", "public.other").count() == 1


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
