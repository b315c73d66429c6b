"""A small load and queries of its tables: `make setup` runs it for an archive of the classes that its JVM uses.

`python -m spark_jobs.jvm_warmup BOOTSTRAP FOLDER`: a broker that lets topics be made by those who write to them, and a folder to
work in. A process of its own, since a JVM leaves its archive when it ends. Called by infra/release/java_build.py.
"""

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs.bronze import load as bronze
from spark_jobs.query import engine
from spark_jobs.session import session
from spark_jobs.silver import load as silver

_SOURCE, _STREAM, _EPOCH = "jakarta/bank", "bank", "692010c0"
_LAKE = '[lake]\nroot = "lake"\n[kafka]\nbootstrap = "{bootstrap}"\n[streams.bank]\nsources = ["jakarta/bank"]\n'
#: What a change is: its operation, the row before and the row after.
Change = tuple[str, object, object]
_COLUMNS = [
    {"name": "id", "typeName": "int8", "length": None, "scale": None, "position": 1, "optional": False},
    {"name": "name", "typeName": "text", "length": None, "scale": None, "position": 2, "optional": True},
    {"name": "balance", "typeName": "numeric", "length": 10, "scale": 2, "position": 3, "optional": True},
]


def rehearse(bootstrap: str, folder: Path) -> None:
    """Load three transactions one after the other, and query them."""
    file = folder / "lake.toml"
    file.write_text(_LAKE.format(bootstrap=bootstrap))
    lake = load(file, LakeFile)
    spark = session(lake)
    rows = [{"id": number, "name": "a", "balance": "1.50"} for number in range(4)]
    transactions: list[list[Change]] = [
        [("c", None, row) for row in rows],
        [("u", None, rows[1] | {"name": "b"}), ("d", rows[2], None)],
        [("u", {"id": 3}, {"id": 9, "name": "n", "balance": "0.10"}), ("t", None, None), ("c", None, rows[0])],
    ]
    for number, changes in enumerate(transactions, 1):
        _write(spark, bootstrap, number, changes)
        bronze.load(spark, lake, _STREAM)
        silver.load(spark, lake, _STREAM)
    sql_engine = engine.SqlEngine(spark, lake)
    for question in ("SELECT * FROM silver.accounts", "SELECT * FROM silver_live.accounts"):
        if (count := sql_engine.ask(question).count()) != 1:
            raise SystemExit(f"{question}: {count} rows in place of one")
    sql_engine.close()
    jvm = spark.sparkContext._gateway.proc  # noqa: SLF001 - PySpark's way to it.
    spark.stop()
    # It ends with its input, and writes the archive then: that is not there before it has ended.
    jvm.stdin.close()
    jvm.wait()


def _write(spark: SparkSession, bootstrap: str, number: int, changes: list[Change]) -> None:
    records = [_record(number, ordinal, change, len(changes)) for ordinal, change in enumerate(changes)]
    if number == 1:
        records.insert(0, _schema_record())
    frame = spark.createDataFrame([(json.dumps(record),) for record in records], "value string").coalesce(1)
    frame.write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", _STREAM).save()


def _record(number: int, ordinal: int, change: Change, count: int) -> dict[str, object]:
    op, before, after = change
    last = {"last": True} if ordinal == count - 1 else {}
    return {
        "before": before,
        "after": after,
        "source": _block(number, ordinal),
        "op": op,
        "ts_ms": 1769850900261,
        "transaction": {"id": f"761:{number}", "total_order": ordinal + 1} | last,
    }


def _schema_record() -> dict[str, object]:
    table = {"primaryKeyColumnNames": ["id"], "columns": _COLUMNS}
    change = {"type": "CREATE", "id": '"public"."accounts"', "table": table}
    names = {"databaseName": "bank", "schemaName": "public", "ddl": None}
    return {"source": _block(1, 0), "ts_ms": 1769850900261} | names | {"tableChanges": [change]}


def _block(number: int, ordinal: int) -> dict[str, object]:
    return {
        "version": "0",
        "connector": "postgresql",
        "name": _SOURCE,
        "ts_ms": 1769850900250,
        "snapshot": "false",
        "db": "bank",
        "schema": "public",
        "table": "accounts",
        "position": f"{_EPOCH}/{number:016x}/{ordinal:08x}",
    }


if __name__ == "__main__":
    rehearse(sys.argv[1], Path(sys.argv[2]))
