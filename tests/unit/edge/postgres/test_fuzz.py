"""Whole logs of damaged, cut, shuffled and random messages: a typed error or batches that a bridge takes; no crash, no hang."""

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    COMMIT,
    EPOCH,
    INT8,
    NOW_MS,
    NUMERIC,
    UNCHANGED,
    Column,
    Log,
    begin,
    commit,
    delete,
    insert,
    logical_message,
    opened,
    origin,
    relation,
    truncate,
    type_name,
    update,
)

COLUMNS = [
    Column("id", INT8, key=True), Column("n", NUMERIC, modifier=(9 << 16 | 2) + 4), Column("at", 1114), Column("day", 1082),
    Column("f", 701), Column("data", 17), Column("flag", 16), Column("json", 3802), Column("mine", 50001), Column("note"),
]  # fmt: skip
ROW = (1, "12.50", "2026-01-31 09:15:00.25", "2026-01-31", "1.5", "\\x00ff", "t", '{"a": 1}', "7", "Größe")
ODD = (2, "NaN", "infinity", "0044-03-15 BC", "-0", None, None, None, None, UNCHANGED)
NULLS = (3, *[None] * 9)
TABLE = relation(*COLUMNS)
FULL = relation(*(column._replace(key=True) for column in COLUMNS), identity="f")


def the_log(lsn):
    """A transaction with everything in it, and a message behind it."""
    return [
        begin(lsn), origin(), type_name(50001, "int4", namespace=""), TABLE, insert(*ROW), insert(*NULLS), update(ODD),
        update(ROW, key=NULLS), logical_message(), delete(key=NULLS), FULL, update(ODD, old=ROW), delete(old=ROW),
        truncate(16400, 16400), relation(*COLUMNS, Column("added")), insert(*ROW, None), commit(lsn, lsn + 10),
        logical_message(lsn=lsn + 20, transactional=False),
    ]  # fmt: skip


OPTIONS = st.fixed_dictionaries(
    {
        "decimal": st.sampled_from(["string", "precise", "double"]),
        "time": st.sampled_from(["iso", "adaptive", "connect"]),
        "messages": st.sampled_from([[], ["*"]]),
        "transactions": st.booleans(),
        "tombstones": st.booleans(),
    }
)


def read(log, messages):
    """Feed a log until something is refused; return whether nothing was."""
    refused = None
    try:
        for message in messages:
            log.decoder.feed(message, NOW_MS)
    except (CorruptInput, NeedsOperator) as error:
        refused = error
    assert refused is None or refused.hint
    assert refused is None or "Größe" not in refused.message + refused.hint
    return refused is None


def check(log):
    """Whatever was made of it is a chain of batches that the bridge's own checks let pass."""
    follows = Position.start(EPOCH)
    for sealed in log.sealed():
        assert sealed.follows == follows
        follows = opened(sealed).last


@given(OPTIONS)
@settings(deadline=None, max_examples=30)
def test_the_undamaged_log_is_read_whole_and_is_json(options):
    log = Log(key_of=lambda _: ["id"], target_bytes=1, **options)
    assert read(log, [*the_log(COMMIT), *the_log(COMMIT + 1000)])
    for sealed in log.sealed():
        for value in opened(sealed).values:
            assert value is None or json.loads(value)


@given(OPTIONS, st.data())
@settings(deadline=None, max_examples=100)
def test_a_log_with_one_message_damaged(options, data):
    messages = [*the_log(COMMIT), *the_log(COMMIT + 1000)]
    number = data.draw(st.integers(0, len(messages) - 1))
    damaged = bytearray(messages[number])
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    messages[number] = bytes(damaged[: data.draw(st.integers(0, len(damaged)))])
    log = Log(key_of=lambda _: ["id"], target_bytes=1, **options)
    if read(log, messages):
        check(log)


@given(OPTIONS, st.data())
@settings(deadline=None, max_examples=100)
def test_messages_in_any_order_with_anything_between(options, data):
    pool = st.sampled_from([*the_log(COMMIT), *the_log(COMMIT + 1000)])
    messages = data.draw(st.lists(pool | st.binary(max_size=80), max_size=40))
    log = Log(key_of=lambda _: ["id"], target_bytes=1, **options)
    if read(log, messages) and not log.decoder.in_transaction:
        check(log)
