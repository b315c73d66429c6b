"""The schema record is read back as it was written, in Debezium's form."""

import msgspec
import pytest

from headrace.errors import CorruptInput
from headrace.schema import Column, TableSchema

ACCOUNTS = TableSchema(
    schema="public",
    table='odd "name"',
    key=["id"],
    columns=[
        Column(name="id", type_name="int8", position=1, optional=False),
        Column(name="balance", type_name="numeric", length=12, scale=2, position=2),
    ],
)


def record_of(schema):
    return msgspec.json.encode(
        {
            "source": {"schema": schema.schema, "table": schema.table, "more": 1},
            "tableChanges": [schema.change()],
            "ts_ms": 1,
        },
    )


def test_a_schema_is_read_back():
    assert TableSchema.parse(record_of(ACCOUNTS)) == ACCOUNTS


def test_columns_have_debeziums_names():
    assert ACCOUNTS.change()["table"]["columns"][1] == {
        "name": "balance",
        "typeName": "numeric",
        "length": 12,
        "scale": 2,
        "position": 2,
        "optional": True,
    }


@pytest.mark.parametrize("value", [b"", b"[]", b'{"source":{},"tableChanges":[]}', record_of(ACCOUNTS)[:-2]])
def test_what_is_no_schema_record_is_refused(value):
    with pytest.raises(CorruptInput, match="no schema record"):
        TableSchema.parse(value)


@pytest.mark.parametrize(
    ("key", "names"), [(["no"], ["id"]), (["id", "id"], ["id"]), (["id"], ["id", "a", "a"]), (["id"], ["id", ""])]
)
def test_a_schema_that_no_table_can_have_is_none(key, names):
    """It ended the loads of all tables of the stream."""
    columns = [Column(name=name, type_name="int8", position=1) for name in names]
    with pytest.raises(CorruptInput):
        TableSchema.parse(record_of(TableSchema(schema="public", table="t", key=key, columns=columns)))
