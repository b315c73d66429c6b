"""What is kept of schema records, and by which digest it is named."""

import json

from headrace.schema import Column, TableSchema
from spark_jobs.state import schema_texts


def record(number=1, **changes):
    """Return a schema record as an edge writes it in a session."""
    schema = TableSchema(
        **{"schema": "public", "table": "t", "key": ["id"]}
        | {"columns": [Column(name="id", type_name="int8", position=1, optional=False)]}
        | changes
    )
    source = {"name": "j/b", "schema": "public", "table": "t", "position": f"692010c0/{number:016x}/00000000"}
    text = {"source": source | {"ts_ms": number}, "ts_ms": number, "tableChanges": [schema.change()]}
    return json.dumps(text | ({"rewritten": schema.rewritten} if schema.rewritten else {}))


def test_l46_a_schema_that_an_edge_writes_in_each_session_is_kept_once():
    """L46: position and time made another text of each, for each table, source and session."""
    first, again = (schema_texts.digests({"j/b": record(number)}) for number in (1, 2))
    assert first == again
    text = schema_texts._kept(record(1))[1]
    assert "692010c0" not in text
    # and all that a load reads of it is there
    for changes in ({}, {"excluded": ["secret"]}, {"rewritten": ["why"]}, {"key": []}):
        whole = record(**changes)
        assert TableSchema.parse(schema_texts._kept(whole)[1]) == TableSchema.parse(whole)
        assert not changes or schema_texts.digests({"j/b": whole}) != first


def test_what_is_no_schema_record_is_kept_as_it_is():
    assert schema_texts._kept("{}")[1] == "{}"
