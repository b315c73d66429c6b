"""Records in Avro go to Python and back by Arrow where tasks run in this process, and as rows elsewhere, with the same result."""

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.functions import lit

from spark_jobs.bronze import avro_records, envelope
from tests.unit.headrace.schemas.test_avro_json import CHANGES, OF_POSTGRESQL, column, written

RECORD = "topic string, partition int, offset long, key binary, value binary, timestamp long"


@pytest.fixture(params=[True, False], ids=["arrow", "rows"])
def way(request, monkeypatch):
    assert not request.param or avro_records._has_arrow(request.getfixturevalue("spark").sparkContext)
    monkeypatch.setattr(avro_records, "_has_arrow", lambda _: request.param)
    return "ArrowEvalPython" if request.param else "BatchEvalPython"


@pytest.fixture
def made():
    return changed(OF_POSTGRESQL)


def changed(of):
    """Return changes with a source block, in Avro."""
    columns = [column("int8", name="id"), column("text", name="a b", position=2), column("text", name="c", position=3)]
    changes = [change | {"source": of, "ts_ms": 5, "transaction": None} for change in CHANGES]
    return written(columns, *changes, key=["id"], source=of)


def frame(spark, keys, values):
    rows = [("t", 3, at, key, value, 7) for at, (key, value) in enumerate(zip(keys, values, strict=True))]
    return spark.createDataFrame(rows, RECORD)


def test_records_become_json_and_others_stay(spark, way, made):
    keys, values, _, records = made
    more = [(b'{"id":1}', b'{"op":"c"}'), (None, None), (keys[0], None)]
    source = frame(spark, [*keys, *(key for key, _ in more)], [*values, *(value for _, value in more)])
    result = avro_records.as_json(source, records._schemas)
    assert way in result._jdf.queryExecution().executedPlan().toString()
    assert result.columns == source.columns
    rows = [row.asDict() for row in result.orderBy("offset").collect()]
    assert [row["value"] for row in rows] == [*map(records.value, values), b'{"op":"c"}', None, None]
    assert [row["key"] for row in rows][-3:] == [b'{"id":1}', None, records.key(keys[0])]
    assert {(row["topic"], row["partition"], row["timestamp"]) for row in rows} == {("t", 3, 7)}


def test_records_in_json_are_not_given_to_python(spark, way, made, monkeypatch):
    class Marking:
        """Says what it is given, in place of reading it."""

        def __init__(self, *_):
            pass

        def __call__(self, *record):
            return (b"python", b"python") if any(part is not None for part in record) else (None, None)

    monkeypatch.setattr(avro_records, "Reader", Marking)
    json = [(b'{"id":1}', b'{"op":"c"}'), (None, b"{}"), (b"1", None), (None, None), (b"", b"")]
    avro = [(made[0][0], made[1][0]), (made[0][0], None), (made[0][0], b"{}"), (b"{}", made[1][0])]
    result = avro_records.as_json(frame(spark, *zip(*json, *avro, strict=True)), made[3]._schemas)
    pairs = [(row["key"], row["value"]) for row in result.orderBy("offset").collect()]
    assert pairs == json + [(b"python", b"python")] * len(avro)


def test_a_record_that_is_not_of_its_schema_fails_by_its_place_without_its_values(spark, way, made):
    keys, values, _, records = made
    source = frame(spark, keys[:2], [values[0], values[1][:-3]])
    with pytest.raises(PySparkException) as caught:
        avro_records.as_json(source, records._schemas).collect()
    assert 'topic t partition 3 offset 1 what "avro-form"' in str(caught.value)
    assert '"a b"' not in str(caught.value)
    assert not avro_records.is_unread(caught.value)


def test_s4_a_record_that_is_not_of_its_schema_is_divided_from_the_rest(spark, way):
    keys, values, _, records = changed(OF_POSTGRESQL | {"position": "692010c0/0000000001a00000/00000003"})
    source = frame(spark, keys[:3], [values[0], values[1][:-3], values[2]])
    name = OF_POSTGRESQL["name"]
    # an edge may register any schema for a table of its own
    hostile = records._schemas | {7: '"string"', 8: '{"name":"Envelope","fields":[]}'}
    more = frame(spark, [None, None], [b"\0\0\0\0\7x", b"\0\0\0\0\x08x"]).withColumn("partition", lit(4))
    source = source.union(more).withColumn("timestamp", lit("2026-01-31").cast("timestamp"))
    json = avro_records.as_json(source, hostile, keeps=True)
    rows, refused = envelope.divided(json, {3: (name,), 4: ("oslo/rogue",)}, avro=True)
    assert [row["offset"] for row in rows.orderBy("offset").select("offset").collect()] == [0, 2]
    result = refused.orderBy("partition", "offset").select("partition", "offset", "source", "reason").collect()
    assert [tuple(row) for row in result] == [
        (3, 1, name, "avro-form"), (4, 0, "oslo/rogue", "avro-form"), (4, 1, "oslo/rogue", "avro-form"),
    ]  # fmt: skip
    with pytest.raises(PySparkException) as caught:
        envelope.rows(avro_records.as_json(source, hostile), {}).collect()
    assert envelope.is_refused(caught.value)


def test_a_schema_that_is_not_known_is_met_in_reading(spark, way, made):
    keys, values, _, records = made
    with pytest.raises(PySparkException) as caught:
        avro_records.as_json(frame(spark, keys, values), {1001: records._schemas[1001]}).collect()
    assert avro_records.is_unread(caught.value)
