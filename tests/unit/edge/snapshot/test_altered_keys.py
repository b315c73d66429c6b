"""Schema records that depend on the present catalog: no record is read with a key of another time (E5)."""

import json

import pytest

from bridge.model.chain import Next, judge
from edge.snapshot.table_history import TableHistory
from headrace.position import Position
from tests.unit.edge.postgres.messages import (
    EPOCH,
    INT4,
    TEXT,
    Column,
    Log,
    insert,
    relation,
)
from tests.unit.edge.snapshot.histories import BEFORE, SOURCE, opened, place, schemas, session

FULL = relation(Column("id", INT4, key=True), Column("code", TEXT, key=True), identity="f")


@pytest.mark.parametrize("tail", [1000, 2000, 3000])
def test_a_key_that_was_altered_since_is_never_taken_for_the_former_one_e5(tmp_path, tail):
    """E5: the log does not tell the key of such a table; after a crash it is read with the key of now."""
    log = [(1000, FULL, insert(1, "a")), (2000, insert(2, "b")), (3000, insert(3, "c")), (4000, insert(4, "d"))]
    sent = opened(tmp_path)
    former = Log(history=sent, key_of=lambda _: ["id"])
    for at, *messages in log[:3]:
        former.transaction(*messages, commit_lsn=at, end=at + 10)
    former.sealed()
    # when the edge is killed, its key is altered, and the far side has the records up to `tail`
    history = TableHistory(tmp_path, SOURCE)
    history.begin(EPOCH, 3000)
    present = Log(history=history, key_of=lambda _: ["code"])
    for at, *messages in log:
        present.transaction(*messages, commit_lsn=at, end=at + 10)
    kafka, position = [], Position(EPOCH, tail, 0)
    for batch in present.batches():
        verdict = judge(position, batch)
        if isinstance(verdict, Next):
            kafka += zip(batch.keys[verdict.begin :], batch.values[verdict.begin :], strict=True)
    # then the first record that it takes is the schema record with the present key, and the last one has none ahead
    keys = [
        json.loads(value)["tableChanges"][0]["table"]["primaryKeyColumnNames"]
        for _, value in kafka
        if b"tableC" in value
    ]
    assert b"tableChanges" in kafka[0][1]
    assert set(map(tuple, keys)) == {("code",)}
    assert json.loads(kafka[-1][0]) == {"code": "d"}


def test_former_release_kept_no_history_so_its_records_may_be_of_another_key_e5(tmp_path):
    result = session(
        tmp_path, (1000, FULL, insert(1, "a")), (2000, insert(2, "b")), (3000, insert(3, "c")), sent_until=2000
    )
    assert [at for at, _ in schemas(result)] == [place(1000), place(2000), place(3000)]


def test_schema_that_is_the_log_s_own_is_sent_once_though_nothing_is_known_of_the_table_e5(tmp_path):
    """After a kill, or where a former release kept no history: who reads the log again finds the schema of before."""
    result = session(tmp_path, (1000, BEFORE, insert(1, "a")), (2000, insert(2, "b")), sent_until=2000)
    assert [at for at, _ in schemas(result)] == [place(1000)]
