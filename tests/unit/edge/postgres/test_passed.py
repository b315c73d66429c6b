"""A transaction that is passed over, by the LSN of its commit."""

import json
from base64 import b64decode

import pytest

from edge.postgres.checkpoint import format_lsn
from edge.progress.notes import Passed
from edge.snapshot.table_history import TableHistory
from headrace.errors import CorruptInput
from tests.unit.edge.postgres.messages import COMMIT, INT8, Column, Log, begin, commit, insert, relation

TABLE = relation(Column("id", INT8, key=True), Column("note"))
BAD = COMMIT + 0x1000


@pytest.mark.parametrize("envelope", ["classic", "debezium"])
def test_exactly_that_transaction_is_passed_and_a_message_says_so(tmp_path, envelope):
    lsn = format_lsn(BAD)
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(1, 0)
    log = Log(
        key_of=lambda _: ["id"], history=history, passed={lsn: Passed(lsn, "ani@edge", 17)}, largest_megabytes=1,
        on_too_large="stop", **({"envelope": "debezium"} if envelope == "debezium" else {}),
    )  # fmt: skip
    log.transaction(TABLE, insert(1, "a"), insert(2, "a"))
    log.feed(begin(BAD), insert(1, "x" * (1 << 20)), insert(1, "a")[:-1], commit(BAD, BAD + 0x100))

    assert log.decoder.end_lsn == BAD + 0x100
    assert log.decoder.committed.commit == BAD
    (message,) = [json.loads(value) for value in log.batcher.values if b'"op":"m"' in value]
    assert json.loads(b64decode(message["message"]["content"])) == {
        "transaction": lsn, "by": "ani@edge", "at_ms": 17, "tables": ["public.accounts"],
    }  # fmt: skip
    assert message["message"]["prefix"] == "headrace.passed"
    assert list(history.warnings) == ["public.accounts"]

    later = BAD + 0x2000
    log.transaction(insert(3, "b"), commit_lsn=later, end=later + 0x100)
    schema, change = [json.loads(value) for value in log.batcher.values[-2:]]
    assert schema["rewritten"] == [f"transaction {lsn} was passed over by ani@edge"]
    assert change["after"] == {"id": 3, "note": "b"}
    with pytest.raises(CorruptInput):
        log.transaction(insert(1, "a")[:-1], commit_lsn=later + 0x1000, end=later + 0x1100)
    assert log.decoder.present == format_lsn(later + 0x1000)


def test_a_table_whose_description_cannot_be_read_needs_a_copy_by_its_name(tmp_path):
    """The first change of a session brings the description: where that ends decoding, nothing else has the table."""
    lsn = format_lsn(BAD)
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(1, 0)
    log = Log(key_of=lambda _: ["id"], history=history, passed={lsn: Passed(lsn, "ani@edge", 17)})
    # cut behind the names
    log.feed(begin(BAD), TABLE[:-3], insert(1, "a"), commit(BAD, BAD + 0x100))
    (message,) = [json.loads(value) for value in log.batcher.values]
    assert json.loads(b64decode(message["message"]["content"]))["tables"] == ["public.accounts"]
    assert list(history.warnings) == ["public.accounts"]


@pytest.mark.parametrize(
    "options", [{"format": "avro"}, {"cloudevents": True}, {"format": "avro", "cloudevents": True}]
)
def test_the_message_is_one_in_json_among_records_of_every_form(tmp_path, options):
    lsn = format_lsn(BAD)
    history = TableHistory(tmp_path, "jakarta/bank")
    history.begin(1, 0)
    log = Log(key_of=lambda _: ["id"], history=history, passed={lsn: Passed(lsn, "ani@edge", 17)}, **options)
    log.transaction(TABLE, insert(1, "a"))
    log.feed(begin(BAD), insert(1, "a")[:-1], commit(BAD, BAD + 0x100))
    log.transaction(insert(2, "b"), commit_lsn=BAD + 0x2000, end=BAD + 0x2100)

    (batch,) = log.batches()
    _, _, message, schema, _ = batch.values
    assert (json.loads(message)["op"], json.loads(schema)["tableChanges"][0]["type"]) == ("m", "CREATE")
    assert json.loads(batch.keys[2]) == {"prefix": "headrace.passed"}
    assert [value[0] == 0 for value in batch.values] == [False, "format" in options, False, False, "format" in options]
    if "cloudevents" in options:
        headers = dict(batch.headers[2])
        assert headers["ce_specversion"] == b"1.0"
