"""Marks of a table's copy, where the watermark's transaction is in the log (L34)."""

import msgspec

from edge.postgres.snapshot_decoder import SnapshotDecoder
from headrace.configuration.records import Records
from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema, copy_mark
from tests.unit.edge.postgres import messages
from tests.unit.edge.postgres.accounts import DEFAULT, primary_key


class Copied(msgspec.Struct):
    """What the decoder needs of a table that is copied."""

    oid: int
    messages: tuple[bytes, ...]


def test_marks_are_schema_records_with_positions_and_ends_of_their_own():
    log = messages.Log()
    log.decoder = SnapshotDecoder(
        source="jakarta/bank",
        database="bank",
        epoch=messages.EPOCH,
        batcher=log.batcher,
        key_of=primary_key,
        records=Records(),
        policy=None,
    )
    table = Copied(oid=int.from_bytes(DEFAULT[1:5], "big"), messages=(DEFAULT,))

    log.feed(messages.begin(messages.COMMIT))
    begins = log.decoder.mark_copy(table, COPY_BEGINS)
    emptied = log.decoder.truncate(table)
    log.feed(messages.commit(messages.COMMIT, messages.END))
    log.feed(messages.begin(messages.END))
    ends = log.decoder.mark_copy(table, COPY_ENDS)
    log.feed(messages.commit(messages.END, messages.END + 1))

    found = log.records()
    assert [record.position for record in found if "transaction" in record.value] == [begins, emptied, ends]
    first, last = (record.value for record in found if "op" not in record.value and "transaction" in record.value)
    marks = [copy_mark(msgspec.json.encode(value)) for value in (first, last)]
    assert marks == [COPY_BEGINS, COPY_ENDS]
    assert ("last" in first["transaction"], last["transaction"]["last"]) == (False, True)
    assert TableSchema.parse(msgspec.json.encode(last)).key == ["id"]
    assert last["source"]["position"] == str(ends)
