"""Where a record in Avro comes from, whatever its table's columns are."""

import pytest

from edge.postgres import rows_compiled
from headrace.errors import CorruptInput
from headrace.schemas import column_types
from tests.unit.edge.postgres.messages import UNCHANGED, Column, Log, insert, relation, update


@pytest.mark.parametrize("worth_making", [0, 1000])
def test_the_origin_is_found_ahead_of_the_rows(monkeypatch, worth_making):
    monkeypatch.setattr(rows_compiled, "WORTH_MAKING", worth_making)
    log = Log(format="avro")
    columns = relation(Column("id", 20, key=True), Column("name"), Column("note"))
    log.transaction(columns, insert(1, "a", "b"), update((1, UNCHANGED, UNCHANGED)))
    (batch,) = log.batches()
    values = [column_types.read_origin(value) for value in batch.values[1:]]
    assert [each.op for each in values] == ["c", "u"]
    assert [each.position for each in values] == [str(position) for position in list(batch.positions())[1:]]
    assert {each[1:4] for each in values} == {("jakarta/bank", "public", "accounts")}


@pytest.mark.parametrize("value", [b"\0\0\0\0\1", b"\0\0\0\0\1\2c", b"\0\0\0\0\1\xff"])
def test_what_is_no_record_is_corrupt(value):
    with pytest.raises(CorruptInput):
        column_types.read_origin(value)
