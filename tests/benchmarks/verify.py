"""What verification costs on a table: CPU seconds and the most memory, of the source's backend and of the JVM.

`python -m tests.benchmarks.verify [ROWS]` writes build/bench-verify.json. Both sides are made by the same formula, so no pipeline
has to carry the rows; one row in the middle is then changed, and found again.
"""

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.verify.postgres.database import SourceDatabase
from infra.local import files
from infra.local.postgres import Postgres
from spark_jobs import session
from spark_jobs.verify.verify import verify
from tests.benchmarks.results import Result, show, write
from tests.benchmarks.usage import Usage, usage

_SOURCE = "jakarta/bank"
_COLUMNS = (
    "{n}::bigint AS id, ({n} % 1000)::int AS shop, 'customer number ' || {n} AS name, ({n} / 100.0)::numeric(12,2) AS amount,"
    " ({n} % 2 = 0) AS paid, ({n} * 1.5)::float8 AS weight, to_timestamp(1700000000 + {n}) AS at, md5({n}::text) AS note"
)
_SILVER = (
    "id",
    "cast(id % 1000 AS int) AS shop",
    "concat('customer number ', id) AS name",
    "cast(id / 100BD AS decimal(12,2)) AS amount",
    "id % 2 = 0 AS paid",
    "cast(id * 1.5D AS double) AS weight",
    "timestamp_seconds(1700000000 + id) AS at",
    "md5(cast(cast(id AS string) AS binary)) AS note",
)


class _Silver:
    """One table, as the lake would give it."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def names(self, _source: str) -> set[str]:
        return {"public.orders"}

    def dropped(self) -> set[str]:
        return set()

    def frame(self, _source: str, _name: str) -> Any:
        return self._frame

    def treated(self, _source: str, _name: str) -> dict[str, str]:
        return {}

    def problem(self, _name: str) -> None:
        return None


def main() -> None:
    """Measure, print and write."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        postgres = Postgres(Path(folder) / "postgres")
        try:
            postgres.start()
            results = _measure(Path(folder), postgres, rows)
        finally:
            postgres.delete()
    show(console, results)
    write(results, Path("build/bench-verify.json"))


def _measure(folder: Path, postgres: Postgres, rows: int) -> list[Result]:
    dsn = postgres.create_database("bank")
    made = f"CREATE TABLE orders AS SELECT {_COLUMNS.format(n='n')} FROM generate_series(1, {rows}) n"
    postgres.psql(f"{made}; ALTER TABLE orders ADD PRIMARY KEY (id); ANALYZE orders", "bank")
    assert dsn
    direct = {_SOURCE: (postgres, "bank")}
    path = files.lake(folder / "lake.toml", bootstrap="none:1", sources=[_SOURCE], stream="bank", direct=direct)
    lake = load(path, LakeFile)
    spark = session.session(lake, name="bench")
    try:
        jvm = spark.sparkContext._gateway.proc.pid
        table = str(folder / "orders")
        spark.range(1, rows + 1, numPartitions=8).selectExpr(*_SILVER).write.format("delta").save(table)
        frame = spark.read.format("delta").load(table)
        equal = _run(lake, frame, jvm, expected="equal")
        spark.sql(f"UPDATE delta.`{table}` SET amount = amount + 0.01 WHERE id = {rows // 2}")
        altered = _run(lake, spark.read.format("delta").load(table), jvm, expected="not equal")
    finally:
        spark.stop()
    results = []
    for name, (seconds, source, spark_side) in (("equal", equal), ("one digit changed, and found", altered)):
        results += [
            Result(f"{name}: {rows:,} rows", round(seconds, 1), "s"),
            Result(f"{name}: source, CPU", round(source.cpu_seconds, 1), "s"),
            Result(f"{name}: source, most memory", round(source.peak_megabytes), "MB"),
            Result(f"{name}: Spark, CPU", round(spark_side.cpu_seconds, 1), "s"),
            Result(f"{name}: Spark, most memory", round(spark_side.peak_megabytes), "MB"),
        ]
    return [*results, Result("the command's own process, most memory", round(usage(os.getpid()).peak_megabytes), "MB")]


def _run(lake: LakeFile, frame: Any, jvm: int, *, expected: str) -> tuple[float, Usage, Usage]:
    """Verify once; return seconds, and what the source's backend and the JVM cost for it."""
    address = lake.sources[_SOURCE].postgresql
    assert address is not None
    before, began = usage(jvm), time.monotonic()
    with SourceDatabase.connect(_SOURCE, address, placed=True) as database:
        ((pid,),) = database.query("SELECT pg_backend_pid()", "the backend")
        (report,) = verify(_SOURCE, database, _Silver(frame))
        source = usage(pid)
    seconds, after = time.monotonic() - began, usage(jvm)
    assert report.verdict == expected, report
    assert report.differences == [] or [it.columns for it in report.differences] == [("amount",)]
    return seconds, source, Usage(after.cpu_seconds - before.cpu_seconds, after.peak_megabytes)


if __name__ == "__main__":
    main()
