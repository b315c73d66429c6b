"""The envelope's fields beside a record: the same from its end as from its JSON, for all that edges and others write."""

import json
import random
from datetime import UTC, datetime

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from edge.debezium.connectors import CONNECTORS, source_place
from edge.debezium.frames import Change, Source
from edge.mysql import envelope as mysql
from edge.postgres import envelope as debezium
from edge.postgres import envelope as postgres
from edge.records.envelope import END, LAST_END
from spark_jobs.bronze import avro_records, envelope
from tests.hostile.spoiling import json_of, spoil, spoil_bytes

POSITION = "692010c0/0000000001a00000/00000003"
STAMP = 1769850900250
UNCHANGED = b',"unchanged":["note","photo"]'
SHA = b'"sha256":"' + b"9f86d081884c7d65" * 4 + b'"}'
TOO_LARGE = b',"too_large":{"bytes":31457280,' + SHA
COMPACT = {"separators": (",", ":"), "ensure_ascii": False}


def of_postgres(rows, op=b"u", number=1, *, last=False, schema="public", table="accounts"):
    """Return a record as the edge for PostgreSQL puts it together."""
    transaction = postgres.Transaction(epoch=0x692010C0, commit=0x1A00000, commit_ms=STAMP, xid=761)
    names = postgres.Table(source="jakarta/bank", database="bank", schema=schema, table=table)
    counted = str(number).encode() + (b',"last":true' if last else b"")
    around = postgres.Around(transaction.committed, transaction.place, b"00000003", transaction.read(1), counted)
    return b"{" + rows + b"," + names.rest(op, around)


def of_mysql(rows, gtid, *, last=False):
    """Return a record as the edge for MariaDB and MySQL puts it together."""
    given = {"epoch": 0x692010C0, "commit": 0x1A00000, "commit_us": STAMP * 1000, "server_id": 1}
    transaction = mysql.Transaction(**given, gtid=gtid, file="binlog.000001")
    table = mysql.Table(connector="mariadb", source="singapore/pay", database="pay", table="cards")
    ending = LAST_END if last else END
    middle = table.middle(transaction) + b"0" + transaction.place + b"00000003" + mysql.end(b"u", transaction, 1)
    return b"{" + rows + b"," + middle + b"12" + ending


def of_sqlserver(rows):
    """Return a record as the edge puts it together of Debezium's for SQL Server, with an LSN of 80 bits."""
    place = {"commit_lsn": "000443d8:0073d0da:0005", "change_lsn": "000443d8:0073d037:00a9", "event_serial_no": 1}
    connector, source = CONNECTORS["sqlserver"], Source(ts_ms=STAMP, db="bank", schema="dbo", table="accounts", **place)
    transaction = connector.transaction(0x692010C0, source_place(source, 0) - 1, source, STAMP)
    table = connector.table("jakarta/bank", source)
    ahead, between = connector.around(table, Change(source=source, op="c"), transaction, STAMP)
    return b"{" + rows + b"," + ahead + b"00000003" + between + b"1" + END


def of_debezium(rows, op=b"u", number=1, *, last=False, last_end=0x19FFFF0, origin=None):
    """Return a record as the edge for PostgreSQL puts it together with `envelope = "debezium"`."""
    transaction = debezium.DebeziumTransaction(
        epoch=0x692010C0, commit=0x1A00000, commit_us=STAMP * 1000 + 7, xid=761, last_end=last_end
    )
    if origin is not None:
        transaction.set_origin(b"O" + (0x1900000).to_bytes(8, "big") + origin + b"\0")
    names = postgres.Table(source="jakarta/bank", database="bank", schema="public", table="accounts")
    read = transaction.read(STAMP + 11)
    around = transaction.around(lsn=0x19FFFFF, ordinal=3, read=read, total=number, of_table=number)
    record = b"{" + rows + b"," + names.rest(op, around)
    return record.removesuffix(END) + LAST_END if last else record


ROW = b'"before":null,"after":{"id":1,"note":"a,b"}'
COPY = json.dumps(of_postgres(ROW, last=True).decode()).encode()
EDGES = {
    "insert": of_postgres(ROW, b"c"),
    "last": of_postgres(ROW, last=True, number=1234567),
    "delete": of_postgres(b'"before":{"id":1},"after":null', b"d"),
    "truncate": of_postgres(b'"before":null,"after":null', b"t", last=True),
    "unchanged": of_postgres(ROW + UNCHANGED),
    "a row that holds a record": of_postgres(b'"before":null,"after":{"id":1,"note":' + COPY + b"}"),
    "a row that ends like the names of columns": of_postgres(b'"before":null,"after":{"id":1,"note":"x]"}'),
    "a long text": of_postgres(b'"before":null,"after":{"id":1,"note":"' + b"\xc3\xa9" * 900 + b'"}'),
    "mariadb": of_mysql(ROW, "0-1-42"),
    "mysql without gtid": of_mysql(ROW + UNCHANGED, None, last=True),
}
OF_DEBEZIUM = {
    "debezium's insert": of_debezium(ROW, b"c"),
    "debezium's last": of_debezium(ROW, last=True, number=1234567),
    "debezium's delete": of_debezium(b'"before":{"id":1,"note":""},"after":null', b"d"),
    "debezium's change of a key": of_debezium(ROW + b',"former_key":{"id":7}', b"c", 2),
    "debezium's change of a key, of which the log has not all": of_debezium(
        ROW + b',"former_key":{"id":7}' + UNCHANGED, b"c", last=True
    ),
    "debezium's placeholder": of_debezium(
        b'"before":null,"after":{"id":1,"note":"__debezium_unavailable_value"}' + UNCHANGED
    ),
    "debezium's too large": of_debezium(ROW + UNCHANGED + TOO_LARGE, last=True),
    "debezium's first of a session": of_debezium(ROW, last_end=0),
    "debezium's of a replica": of_debezium(ROW + UNCHANGED, origin=b'a,"b"],'),
}
WHOLE = json.loads(EDGES["last"])
OTHERS = {
    "too large": of_postgres(ROW + UNCHANGED + TOO_LARGE),
    "too large, with a long name": of_postgres(ROW + UNCHANGED + TOO_LARGE, table="t" * 60, schema="s" * 20),
    "too large, of a row whose end alone is looked at": of_postgres(ROW + UNCHANGED + TOO_LARGE, table="t" * 40),
    "names with commas and quotes": of_postgres(ROW, schema="a,b", table='c"d\\é'),
    "a very long name": of_postgres(ROW + UNCHANGED, table="é" * 200),
    "spaces": json.dumps(WHOLE).encode(),
    "a wide position": of_sqlserver(ROW),
    "source first": json.dumps({"source": WHOLE["source"]} | WHOLE, **COMPACT).encode(),
    "row last": json.dumps(
        {k: WHOLE[k] for k in ("source", "op", "transaction", "before", "after")}, **COMPACT
    ).encode(),
    "operation ahead of the source": json.dumps({"before": None, "op": "u"} | WHOLE, **COMPACT).encode(),
    "no transaction": json.dumps(WHOLE | {"transaction": None}, **COMPACT).encode(),
    "names of columns last": json.dumps(WHOLE | {"unchanged": ["note"]}, **COMPACT).encode(),
    "message": json.dumps({"message": {}, "source": WHOLE["source"] | {"schema": "", "table": ""}, "op": "m"}).encode(),
    "members in another case beside them": json.dumps(
        {**WHOLE, "source": WHOLE["source"] | {"Name": "a/b"}, "Source": WHOLE["source"] | {"name": "a/b"}, "Op": "d"},
        **COMPACT,
    ).encode(),
    "schema record": json.dumps({"source": WHOLE["source"], "tableChanges": [{}]}, **COMPACT).encode(),
}


def expected(value):
    """Return what bronze says beside a value, by its JSON."""
    result = json.loads(value)
    source, transaction = result["source"], result.get("transaction") or {}
    table = f"{source['schema']}.{source['table']}" if source["table"] else None
    beside = [source["name"], table, result.get("op"), source["position"], transaction.get("id")]
    return (*beside, transaction.get("last", False), source["ts_ms"], "unchanged" in result)


@pytest.fixture(scope="module")
def kafka_records(spark):
    """Return a function that makes records as Spark's Kafka source has them."""

    def make(values):
        at = datetime(2026, 1, 31, tzinfo=UTC)
        rows = [("bank", 0, n, at, None, None if v is None else bytearray(v)) for n, v in enumerate(values)]
        structure = "topic string, partition int, offset bigint, timestamp timestamp, key binary, value binary"
        return spark.createDataFrame(rows, structure)

    return make


def test_fields_are_those_of_the_json_whatever_its_form(kafka_records):
    values = {**EDGES, **OF_DEBEZIUM, **OTHERS}
    rows = envelope.rows(kafka_records(values.values())).selectExpr(
        *(
            "offset",
            "source",
            "table",
            "op",
            "position",
            "transaction_id",
            "last",
            "unix_millis(commit_time)",
            "partial",
        )
    )
    result = dict(zip(values, (tuple(row)[1:] for row in sorted(rows.collect())), strict=True))
    assert result == {name: expected(value) for name, value in values.items()}


def test_records_of_our_edges_are_read_from_their_end(kafka_records):
    records = kafka_records(EDGES.values())
    cut = records.select("offset", records["value"].cast("string").alias("value"), *envelope.pieces(records["value"]))
    rows = envelope.read(cut).select("offset", envelope.PLAIN).collect()
    assert [name for name, row in zip(EDGES, sorted(rows), strict=True) if not row[envelope.PLAIN]] == []


def test_a_jvm_compiles_what_reads_the_records(spark):
    # Bytes of a method's code above which HotSpot interprets it for good: a load then takes twice as long, and says nothing.
    huge = 8000
    sizes = [stage._3().maxMethodCodeSize() for stage in _generated(spark)]
    assert sizes
    assert max(sizes) < huge


def test_one_batch_has_the_code_of_another(spark):
    # Else Spark compiles it for each batch, every other second of a load that never ends.
    code, other = ([stage._2() for stage in _generated(spark)] for _ in range(2))
    assert code
    assert code == other


def test_s3_s4_what_is_no_record_and_what_is_another_sources_is_divided_from_the_rest(kafka_records):
    ours, foreign = json.dumps(WHOLE, **COMPACT).encode(), b"[1]"
    name = WHOLE["source"]["name"]
    records = kafka_records([ours, foreign, None])
    for sources, refused in (
        ({}, [1]),
        ({0: (name,)}, [1]),
        ({0: ("a/b", name)}, [1]),
        ({0: (name, "a/b"), 1: ("c/d",)}, [1]),
    ):
        rows, apart = envelope.divided(records, sources)
        assert [row["offset"] for row in apart.collect()] == refused
        assert sorted(row["offset"] for row in rows.collect()) == [0, 2]
    _, apart = envelope.divided(records, {0: ("a/b",)})
    result = apart.orderBy("offset").select("offset", "source", "named_source", "reason").collect()
    assert [tuple(row) for row in result] == [(0, "a/b", name, "source"), (1, "a/b", None, "envelope")]
    with pytest.raises(PySparkException) as refused:
        envelope.rows(records, {0: ("a/b",)}).collect()
    assert envelope.is_refused(refused.value)


def test_s3_s4_of_what_is_spoiled_inside_an_envelope_each_is_a_row_or_is_divided_from_the_rest(kafka_records):
    """As `make fuzz` spoils, in one job: of each run by another seed."""
    seed = random.SystemRandom().getrandbits(32)
    print(f"seed {seed}")
    chance, valid = random.Random(seed), [*EDGES.values(), *OF_DEBEZIUM.values(), *OTHERS.values()]
    values = []
    for _ in range(3000):
        good = chance.choice(valid) or b"null"
        value = spoil_bytes(good, chance) if chance.random() < 0.5 else json_of(spoil(json.loads(good), chance))
        # What begins so is in Avro, which whoever loads has to read first.
        values.append(value.lstrip(b"\0"))
    rows, apart = envelope.divided(kafka_records(values), {0: (WHOLE["source"]["name"],)})
    offsets = [{row["offset"] for row in each.collect()} for each in (rows, apart)]
    assert offsets[0] & offsets[1] == set()
    assert offsets[0] | offsets[1] == set(range(len(values)))
    assert all(offsets)


def test_s4_a_key_in_avro_beside_a_value_in_json_is_refused_and_a_tombstone_in_avro_waits_for_its_schema(kafka_records):
    ours = json.dumps(WHOLE, **COMPACT).encode()
    key = F.lit(b"\0\0\0\0\7\2")
    records = kafka_records([ours]).withColumn("key", key)
    for avro in (False, True):
        rows, apart = envelope.divided(records, {}, avro=avro)
        assert rows.collect() == []
        assert [row["reason"] for row in apart.collect()] == ["avro-form"]
    tombstone = kafka_records([None]).withColumn("key", key)
    with pytest.raises(PySparkException) as unread:
        envelope.divided(tombstone, {})[0].collect()
    assert avro_records.is_unread(unread.value)
    assert [row["reason"] for row in envelope.divided(tombstone, {}, avro=True)[1].collect()] == ["avro-form"]


def _generated(spark):
    """Return what Spark generates for a batch: plan, code and sizes of each stage."""
    settings = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    before = {name: spark.conf.get(name) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        value = "cast(cast(id AS string) AS binary)"
        source = spark.range(1).selectExpr(
            *("string(id) AS topic", "int(id) AS partition", "id AS offset", "timestamp_millis(id) AS timestamp"),
            *(f"{value} AS key", f"{value} AS value"),
        )
        plan = envelope.ordered(envelope.rows(source, {0: ("a/b",), 1: ("c/d",)}))._jdf.queryExecution()
        stages = spark._jvm.org.apache.spark.sql.execution.debug.__getattr__("package").codegenStringSeq(
            plan.executedPlan()
        )
        return [stages.apply(n) for n in range(stages.size())]
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
