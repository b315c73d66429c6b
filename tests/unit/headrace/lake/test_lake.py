"""A lake of hand-written Delta logs: which version is read, and what of its files. tests/integration has what Spark writes."""

import json
import struct
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from zlib import crc32

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator
from headrace.lake import Lake
from headrace.lake.table import LakeTable
from tests.unit.headrace.lake.test_delta_log import bitmap, vector

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FEATURES = ["deletionVectors", "columnMapping", "typeWidening"]
#: A vector's file name by its UUID in Z85.
UUID, Z85 = "00000000-0000-0000-0000-000000000000", "0" * 20


def field(name, kind, stored=None):
    metadata = {"delta.columnMapping.physicalName": stored} if stored else {}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def metadata(*fields, **more):
    schema = json.dumps({"type": "struct", "fields": list(fields)})
    return {"metaData": {"id": "x", "schemaString": schema, "partitionColumns": [], "configuration": {}} | more}


def protocol(*features):
    return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(features)}}


class Table:
    """A table that is written by hand."""

    def __init__(self, root, path):
        self.folder = root / path
        self.log = self.folder / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1

    def file(self, name, rows):
        pq.write_table(rows, self.folder / name)

    def commit(self, *actions):
        self.version += 1
        lines = [json.dumps(action) for action in ({"commitInfo": {"operation": "WRITE"}}, *actions)]
        (self.log / f"{self.version:020d}.json").write_text("\n".join(lines))

    def deleted(self, *rows):
        """Write a vector; return its descriptor."""
        data = vector((0, bitmap(rows)))
        stored = struct.pack(">I", len(data)) + data + struct.pack(">I", crc32(data))
        name = f"deletion_vector_{UUID}.bin"
        there = (self.folder / name).read_bytes() if (self.folder / name).exists() else b"\1"
        (self.folder / name).write_bytes(there + stored)
        place = {"offset": len(there), "sizeInBytes": len(data), "cardinality": len(rows)}
        return {"storageType": "u", "pathOrInlineDv": Z85} | place


@pytest.fixture
def lake(tmp_path):
    """Return a function to publish tables, each (stream's load, table, version, hours after noon, more); it returns the lake."""

    def publish(*published):
        maps = pa.map_(pa.string(), pa.string())
        rows = []
        for load, table, version, hours, *more in published:
            common = {"stream": "bank", "load": load, "finished_at": NOW + timedelta(hours=hours)}
            rows += [
                common | {"table": None, "positions": {"a/b": str(load)}},
                common | {"table": table, "version": version, "state": "current", "path": f"silver/bank/{table}"},
            ]
            for columns in more:
                rows[-1] |= columns
        schema = pa.schema(
            {
                **dict.fromkeys(("stream", "table", "path", "state", "reason"), pa.string()),
                **dict.fromkeys(("load", "version", "history", "since"), pa.int64()),
                **dict.fromkeys(("finished_at", "dropped"), pa.timestamp("us", "UTC")),
                "positions": maps,
            }
        )
        write_deltalake(str(tmp_path / "state"), pa.Table.from_pylist(rows, schema=schema), mode="append")
        names = [
            {"stream": "bank", "table": table, "name": table.partition(".")[2]}
            for table in sorted({table for _, table, *_ in published})
        ]
        write_deltalake(str(tmp_path / "names"), pa.Table.from_pylist(names), mode="append")
        return Lake(str(tmp_path))

    return publish


@pytest.fixture
def accounts(tmp_path):
    """Return a table with a renamed and a widened column. Its second version deletes a row, its third is not published."""
    table = Table(tmp_path, "silver/bank/public.accounts")
    old = pa.table(
        {"col-1": pa.array([1, 2, 3], pa.int32()), "b": pa.array([Decimal("1.00")] * 3, pa.decimal128(5, 2))}
    )
    table.file("a b.parquet", old)
    columns = [field("the id", "integer", "col-1"), field("b", "decimal(5,2)")]
    table.commit(protocol(*FEATURES), metadata(*columns), {"add": {"path": "a%20b.parquet", "partitionValues": {}}})
    wide = [field("the id", "long", "col-1"), field("b", "decimal(10,2)"), field("new", "timestamp")]
    table.file("c.parquet", pa.table({"col-1": pa.array([2**40]), "new": pa.array([NOW], pa.timestamp("us", "UTC"))}))
    table.commit(
        metadata(*wide),
        {"remove": {"path": "a%20b.parquet"}},
        {"add": {"path": "a%20b.parquet", "partitionValues": {}, "deletionVector": table.deleted(1)}},
        {"add": {"path": "c.parquet", "partitionValues": {}}},
    )
    table.commit({"remove": {"path": "c.parquet"}})
    return table


ROWS = [
    {"the id": 1, "b": Decimal("1.00"), "new": None},
    {"the id": 3, "b": Decimal("1.00"), "new": None},
    {"the id": 2**40, "b": None, "new": NOW},
]


def test_a_table_is_read_at_its_published_version_with_all_that_it_uses(lake, accounts):
    table = lake((1, "public.accounts", 1, 0)).table("silver.Accounts")

    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["the id"]) == ROWS
    assert [str(kind) for kind in table.schema.types] == ["int64", "decimal128(10, 2)", "timestamp[us, tz=UTC]"]
    assert table.published.positions == {"a/b": "1"}
    # and so by each engine
    assert table.to_polars()["the id"].sum() == 2**40 + 4
    assert table.select("the id").to_pandas()["the id"].sum() == 2**40 + 4
    assert table.to_duckdb(duckdb.connect()).aggregate('sum("the id")').fetchall() == [(2**40 + 4,)]
    # and where a file is older than all columns that are read
    assert sorted(map(str, table.select("new").to_arrow()["new"].to_pylist()))[1:] == ["None", "None"]
    with pytest.raises(ConfigurationError, match="no column is selected"):
        table.select()
    with pytest.raises(ConfigurationError, match="no column 'nope'"):
        table.select("nope").to_arrow()


def test_views_in_duckdb_show_the_same_whatever_its_zone_is(lake, accounts):
    sql = lake((1, "public.accounts", 1, 0)).views("duckdb")
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    for _ in range(2):
        connection.execute(sql)
    rows = connection.sql('SELECT "the id", b, epoch_ms(new) FROM silver.accounts ORDER BY 1').fetchall()
    assert rows == [(row["the id"], row["b"], row["new"] and int(row["new"].timestamp() * 1000)) for row in ROWS]


def test_as_of_is_what_was_published_by_then_and_one_moment_for_all_tables(lake, accounts, tmp_path):
    other = Table(tmp_path, "silver/bank/public.log")
    for number in (0, 1):
        other.file(f"{number}.parquet", pa.table({"entry": [str(number)]}))
    other.commit(protocol(), metadata(field("entry", "string")), {"add": {"path": "0.parquet"}})
    other.commit({"add": {"path": "1.parquet"}})
    result = lake(
        *((1, "public.accounts", 0, 0), (2, "public.log", 0, 1), (3, "public.accounts", 1, 2), (4, "public.log", 1, 3))
    )
    assert result.names() == ["lake.published", "lake.tables", "silver.accounts", "silver.log"]

    def versions(as_of=None):
        return [table.version for table in result.tables("silver.accounts", "silver.log", as_of=as_of)]

    assert versions() == [1, 1]
    # and what was looked at once stays so, whatever is published meanwhile
    before = result.at()
    lake((5, "public.accounts", 2, 4))
    assert before.table("silver.accounts").version == 1
    assert result.table("silver.accounts").version == 2
    assert versions(NOW + timedelta(hours=2)) == [1, 0]
    assert versions("2026-03-01T13:30:00") == [0, 0]
    assert result.table("silver.accounts", as_of="2026-03-01T12:00:00+00:00").to_arrow().num_rows == 3
    with pytest.raises(ConfigurationError, match=r"silver\.log"):
        result.table("silver.log", as_of=NOW)
    with pytest.raises(NeedsOperator, match="nothing is published by"):
        result.names(as_of=NOW - timedelta(days=1))
    with pytest.raises(ConfigurationError, match="no time"):
        result.names(as_of="yesterday")


def test_what_is_published_is_a_table_too(lake, tmp_path):
    opened = lake((1, "public.accounts", 0, 0), (2, "public.log", 0, 1), (3, "public.accounts", 1, 2))
    write_deltalake(str(tmp_path / "loads"), pa.table({"load": [1, 2, 3]}))

    def versions(as_of=None):
        rows = opened.table("lake.tables", as_of=as_of).select("table", "version", "positions").to_arrow()
        return sorted(map(tuple, (row.values() for row in rows.to_pylist(maps_as_pydicts="strict"))))

    # a table that a load did not change is at the positions of its stream
    assert versions() == [("public.accounts", 1, {"a/b": "3"}), ("public.log", 0, {"a/b": "3"})]
    assert versions(NOW) == [("public.accounts", 0, {"a/b": "1"})]
    assert sorted(opened.table("lake.published").to_polars()["load"]) == [1, 2, 3]
    assert opened.table("headrace.loads").to_arrow().num_rows == 3
    with pytest.raises(ConfigurationError, match="no column 'x'"):
        opened.table("lake.tables").select("x").to_arrow()


def test_tables_of_the_past_are_those_that_still_are_what_they_were(lake):
    opened = lake(
        *((1, f"public.{name}", 7, 0) for name in ("kept", "again", "gone")),
        (2, "public.again", 0, 1, {"since": 2}),
        (3, "public.gone", 7, 2, {"dropped": NOW, "state": "dropped"}),
    )

    def versions(as_of=None):
        rows = opened.table("lake.tables", as_of=as_of).to_arrow()
        return dict(zip(rows["table"].to_pylist(), rows["version"].to_pylist(), strict=True))

    assert versions() == {"public.kept": 7, "public.again": 0}
    # a table that was made again has other files, and one that was dropped has none
    assert versions(NOW) == {"public.kept": 7}
    assert "silver.gone" not in opened.names(as_of=NOW)


def test_opening_a_snapshot_reads_what_is_published_once(lake, monkeypatch):
    opened, read, reads = lake((1, "public.accounts", 0, 0)), LakeTable.to_arrow, []
    monkeypatch.setattr(LakeTable, "to_arrow", lambda table: reads.append(table.published.path) or read(table))

    opened.at()

    assert sorted(reads) == ["names", "state"]


def test_a_log_is_read_from_its_newest_checkpoint_on(lake, accounts):
    adds = [{"path": "a%20b.parquet", "partitionValues": [], "deletionVector": None}]
    columns = {"schemaString": json.dumps({"type": "struct", "fields": [field("the id", "integer", "col-1")]})}
    kept = {"protocol": None, "metaData": None, "add": None}
    rows = [
        kept | {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": FEATURES}},
        kept | {"metaData": {"partitionColumns": [], **columns}},
        *(kept | {"add": add} for add in adds),
    ]
    pq.write_table(pa.Table.from_pylist(rows), accounts.log / f"{0:020d}.checkpoint.parquet")
    (accounts.log / f"{0:020d}.json").unlink()
    assert lake((1, "public.accounts", 1, 0)).table("silver.accounts").to_arrow().num_rows == 3
    # when neither the checkpoint nor the commit is there any more
    (accounts.log / f"{0:020d}.checkpoint.parquet").unlink()
    with pytest.raises(NeedsOperator, match="version 1 is in its log no more"):
        Lake(str(accounts.log.parents[3])).table("silver.accounts").to_arrow()


@pytest.mark.parametrize(
    ("damage", "error", "message"),
    [
        (lambda table: (table.folder / "c.parquet").unlink(), NeedsOperator, "is there no more"),
        (
            lambda table: (table.folder / f"deletion_vector_{UUID}.bin").write_bytes(b"\1\0\0\0\1x"),
            CorruptInput,
            "bytes",
        ),
        (lambda table: (table.folder / f"deletion_vector_{UUID}.bin").unlink(), NeedsOperator, "is there no more"),
    ],
)
def test_what_is_missing_or_damaged_is_named_and_never_read_past(lake, accounts, damage, error, message):
    table = lake((1, "public.accounts", 1, 0)).table("silver.accounts")
    damage(accounts)
    with pytest.raises(error, match=message):
        table.to_arrow()


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([protocol("variantType"), metadata(field("v", "long"))], "variantType"),
        ([protocol(), metadata(field("v", "long"), partitionColumns=["v"])], "partitioned"),
        ([protocol(), metadata(field("v", "interval"))], "interval"),
    ],
)
def test_a_table_that_needs_another_reader_is_refused(lake, tmp_path, actions, message):
    table = Table(tmp_path, "silver/bank/public.odd")
    table.commit(*actions)
    with pytest.raises(NeedsOperator, match=message):
        lake((1, "public.odd", 0, 0)).table("silver.odd").to_arrow()
