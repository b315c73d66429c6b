"""A lake after a month, a year and three years of loads, as maintenance leaves it: what each kind of look at it takes.

The past is written, not lived: logs have the commits of the days for which they are kept (tests/lake/years.py), the lake's own
tables the rows of these days. Opened files and folders are counted for all processes, since on an object store each is a request.
"""

import errno
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from rich.console import Console

from headrace.console.lake import Lake as ConsoleLake
from headrace.lake import Lake
from headrace.waiting import StopRequest
from spark_jobs import preflight, run_log
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import maintain, vacuum
from spark_jobs.serve.server import Follower
from spark_jobs.silver import load as silver
from spark_jobs.silver import table_task
from spark_jobs.state import publication, published, retention
from spark_jobs.verify import report
from tests.benchmarks import lake_tables
from tests.benchmarks.results import Result
from tests.lake.logged import LoggedLake
from tests.lake.opens import Opens
from tests.lake.years import Past, lengthen

_SOURCES = ("bench/a", "bench/b", "bench/c")
_DAY = 24 * 60 * 60


@dataclass(frozen=True, kw_only=True)
class Age:
    """What a lake has been through."""

    name: str
    days: int
    #: Seconds between two commits of bronze, and between two loads of silver.
    bronze: float = 60.0
    silver: float = 60.0
    #: Tables that each load changes.
    hot: int = 4


#: Of these the past is written in a minute.
_TEN_MINUTES = tuple(
    Age(name=f"{name}, loads every 10 min", days=days, bronze=600.0, silver=600.0, hot=2)
    for name, days in (("month 1", 30), ("year 3", 3 * 365))
)
_MINUTES = tuple(Age(name=name, days=days) for name, days in (("month 1", 30), ("year 1", 365), ("year 3", 3 * 365)))
_SECONDS = tuple(
    Age(name=f"{name}, commits of 5 s", days=days, bronze=5.0, silver=15.0, hot=2)
    for name, days in (("month 1", 30), ("year 1", 365))
)


def measure(console: Console, spark: SparkSession, folder: Path, *, tables: int) -> list[Result]:
    """Return what looks, loads and maintenance take of a lake of some tables at each age."""
    found = []
    for age in _TEN_MINUTES + _MINUTES + _SECONDS:
        place = folder / f"years{tables}-{age.days}-{age.bronze:.0f}"
        with console.status(f"writing the past: {tables:,} tables, {age.name}"):
            lake = build(spark, place, tables, age)
        for name, one in _measured(spark, lake, age).items():
            label = f"{tables:,} tables, {age.name}: {name}"
            console.print(
                f"{label}: {one.seconds:.2f} s, {one.opens.files:,} files ({one.opens.size / 1e6:.2f} MB) opened, "
                f"{one.opens.listings:,} folders of {one.opens.listed:,} names listed, {one.heap:.0f} MB of heap"
            )
            found += [
                Result(label, round(one.seconds, 2), "s"),
                Result(f"{label}, opened", one.opens.files, "files"),
                Result(f"{label}, read of them at most", round(one.opens.size / 1e6, 2), "MB"),
                Result(f"{label}, listed", one.opens.listed, f"names in {one.opens.listings} folders"),
                Result(f"{label}, held by the driver", round(one.heap), "MB"),
            ]
        shutil.rmtree(place)
    return found


@dataclass
class _Look:
    seconds: float
    opens: Opens
    heap: float


def _measured(spark: SparkSession, lake: LoggedLake, age: Age) -> dict[str, _Look]:
    """Return what each look takes; those that change the lake are last."""
    root, found = Path(lake.file.root), dict[str, _Look]()

    def take(name: str, work: Callable[[], Any], *, jvm: bool = True) -> None:
        with lake_tables._new_process(spark):
            with Opens(root) as opens:
                began = time.monotonic()
                work()
                seconds = time.monotonic() - began
            found[name] = _Look(seconds, opens, lake_tables._heap(spark) if jvm else 0.0)

    def nothing() -> None:
        outlook = preflight.look(lake.file, "bank", "silver")
        assert outlook.report is not None

    shown = ConsoleLake(lake.file.root, lake.file.streams, lake.file.spark_settings)

    def load() -> None:
        assert len(silver.load(spark, lake.file, "bank").changes) == age.hot

    take("nothing to do, without a JVM", nothing, jvm=False)
    take("headrace.lake, a table", lambda: Lake(lake.file.root).table("silver.shop_t0000").content, jvm=False)
    take("console, first look", shown.look, jvm=False)
    assert not shown.view().problem, shown.view().problem
    take("console, next look", shown.look, jvm=False)
    take("serve, a publication", lambda: _follower(spark, lake).look())
    take("maintenance, nothing due", lambda: _maintain(spark, lake, timedelta(days=1)))
    for run in (1, 2):
        lake_tables._change(lake, age.hot, 10 + run)
        take("bronze, a commit" if run == 2 else "", lake.to_bronze)
        take(f"silver, {age.hot} tables changed" if run == 2 else "", load)
    take("maintenance, 20 tables", lambda: _maintain(spark, lake, timedelta(0), slices=1))
    found.pop("", None)
    return found


def _follower(spark: SparkSession, lake: LoggedLake) -> Follower:
    """Return what shows publications, without its doors and with a catalog that has all tables already."""
    serve = SimpleNamespace(Publications=SimpleNamespace(publish=len))
    follower = Follower(spark, lake.file, serve, StopRequest())
    follower._listing = SimpleNamespace(keep=lambda *_: [])  # type: ignore[assignment] - it would open each table.
    return follower


def _maintain(spark: SparkSession, lake: LoggedLake, older_than: timedelta, slices: int = 0) -> None:
    left = iter(range(slices))
    stopped = (lambda: next(left, None) is None) if slices else (lambda: False)
    maintain.maintain(spark, lake.file, "bank", older_than=older_than, stopped=stopped)


def build(spark: SparkSession, folder: Path, tables: int, age: Age) -> LoggedLake:
    """Write a lake of some tables, of which each load of the past changed the first ones."""
    lake = LoggedLake(spark, folder, sources=_SOURCES)
    for run in range(2):
        lake_tables._change(lake, age.hot + 1, run)
        lake.load()
    root, now = Path(lake.file.root), int(time.time() * 1000)
    keep = lake.file.lake.keep_days
    raw, quiet = _log_days(retention.of_bronze(lake.file)), f"shop.t{age.hot:04}"
    own, of_tables = _log_days(retention.of_own()), _log_days(retention.properties(lake.file))
    loads, commits = int(age.days * _DAY / age.silver), int(age.days * _DAY / age.bronze)
    for number in range(age.hot + 1):
        path = Path(table_task.path(lake.file, "bank", f"shop.t{number:04}"))
        is_hot = number < age.hot
        kept = min(loads - 100, int(of_tables * _DAY / age.silver)) if is_hot else 4
        newest = loads if is_hot else _quiet_version(age)
        _lengthen(spark, path, Past(newest=newest, at=now, kept=kept, every=age.silver if is_hot else 3 * _DAY))
    _multiply(root / "silver" / "bank" / quiet, tables, age.hot)
    small = int(min(keep + 1, age.days) * _DAY / age.bronze)
    past = Past(
        newest=commits, at=now, kept=int(raw * _DAY / age.bronze), every=age.bronze, files=age.days, removed=small
    )
    _lengthen(spark, Path(bronze.table_path(lake.file, "bank")), past)
    _own_rows(spark, lake, tables, age, loads, commits)
    with lake_tables._new_process(spark):
        state = published.latest(spark, lake.file, "bank")
    assert len(state.tables) == tables
    note = publication._note(lake.file, state, "of the past", {"moved": {}, "maintenance": False})
    every = Past(newest=loads, at=now, kept=int(own * _DAY / age.silver), every=age.silver)
    _lengthen(spark, root / "state", every, userMetadata=note)
    _lengthen(spark, root / "loads", every)
    with lake_tables._new_process(spark):
        return lake


def _log_days(properties: dict[str, str]) -> int:
    # Delta removes what is older by whole days, when it writes a checkpoint.
    return int(properties[retention.LOG].split()[1]) + 1


def _lengthen(spark: SparkSession, path: Path, past: Past, **more: str) -> None:
    java = spark._jvm
    log = java.org.apache.spark.sql.delta.DeltaLog.forTable(spark._jsparkSession, str(path))
    none = java.scala.Option.empty()
    log.checkpointAndCleanUpDeltaLog(log.update(False, none, none), none)
    lengthen(path, past, **more)


def _multiply(table: Path, tables: int, first: int) -> None:
    """Make further tables that have the same files."""
    files = [(file.relative_to(table), file) for file in table.rglob("*") if file.is_file()]
    copies: dict[Path, Path] = {}
    for number in range(first + 1, tables):
        other = table.with_name(f"shop.t{number:04}")
        (other / "_delta_log").mkdir(parents=True)
        for name, file in files:
            try:
                (other / name).hardlink_to(copies.get(name, file))
            except OSError as error:
                # A file has as many links at most as its file system allows.
                if error.errno != errno.EMLINK:
                    raise
                copies[name] = shutil.copyfile(file, other / name)


def _own_rows(spark: SparkSession, lake: LoggedLake, tables: int, age: Age, loads: int, commits: int) -> None:
    """Give the lake's own tables the rows that maintenance leaves of the past."""
    root = lake.file.root
    rows = published._newest(spark.read.format("delta").load(f"{root}/state"))
    hot = F.col("table").isNull() | F.col("table").isin(*(f"shop.t{number:04}" for number in range(age.hot)))
    quiet = _repeated(spark, rows.filter(~hot), range(age.hot, tables))
    place = F.format_string("shop.t%04d", F.col("n"))
    quiet = quiet.withColumns({"table": place, "path": F.concat(F.lit("silver/bank/"), place), "load": F.lit(2)})
    quiet = quiet.withColumn("version", F.lit(_quiet_version(age)))
    days = min(lake.file.lake.keep_days + 1, age.days)
    of_past = _repeated(spark, rows.filter(hot), range(int(days * _DAY / age.silver)))
    is_stream = F.col("table").isNull()
    of_past = of_past.withColumns(
        {
            "load": F.lit(loads) - F.col("n"),
            "data": F.when(is_stream, F.lit(loads) - F.col("n")),
            "version": F.when(~is_stream, F.lit(loads) - F.col("n")),
            "started_at": F.when(
                is_stream, F.current_timestamp() - _seconds(age.silver) - F.expr("INTERVAL 3 SECONDS")
            ),
            "finished_at": F.current_timestamp() - _seconds(age.silver),
            "bronze_version": F.when(is_stream, F.lit(commits) - F.col("n") * int(age.silver / age.bronze)),
        }
    )
    version = F.col("bronze_version")
    of_past = of_past.withColumns(
        {"bronze_done": version, "bronze_commit": F.when(is_stream, F.concat(F.lit("of "), version))}
    )
    _overwrite(quiet.drop("n").unionByName(of_past.drop("n")), f"{root}/state")
    known = spark.read.format("delta").load(f"{root}/names")
    more = _repeated(spark, known.limit(1), range(age.hot + 1, tables))
    more = more.withColumns({"table": place, "name": F.format_string("shop_t%04d", F.col("n"))}).drop("n")
    more.coalesce(1).write.format("delta").mode("append").save(f"{root}/names")
    now = datetime.now(UTC)
    sources = [{"source": s, "after": None, "upto": "1", "commit_time": now, "lag_seconds": 1.0} for s in _SOURCES]
    common: dict[str, Any] = {"rows": 1, "files": 1, "batches": 1, "offsets": [], "sources": sources, "tables": []}
    run_log._append(spark, lake.file, [run_log._row("bank", step, 1, 1.0, **common) for step in ("bronze", "silver")])
    past = _repeated(
        spark, spark.read.format("delta").load(f"{root}/loads"), range(int(min(31, age.days) * _DAY / age.silver))
    )
    past = past.withColumns(
        {"load": F.lit(loads) - F.col("n"), "finished_at": F.current_timestamp() - _seconds(age.silver)}
    )
    _overwrite(past.drop("n"), f"{root}/loads")
    with lake_tables._new_process(spark):
        every = sorted(published.latest(spark, lake.file, "bank").tables)
    vacuum.record_times(spark, lake.file, "bank", ["bronze", "lake", *every])
    report.record(
        spark,
        lake.file,
        "bank",
        [report.TableReport(source=s, table=n, verdict="equal") for s in _SOURCES for n in every],
    )


def _quiet_version(age: Age) -> int:
    """Return the version of a table that maintenance alone has written to."""
    return age.days // 3 + 100


def _seconds(every: float) -> Any:
    return F.make_dt_interval(secs=F.col("n") * every)


def _repeated(spark: SparkSession, rows: DataFrame, numbers: range) -> DataFrame:
    return rows.crossJoin(F.broadcast(spark.range(numbers.start, numbers.stop).withColumnRenamed("id", "n")))


def _overwrite(rows: DataFrame, path: str) -> None:
    rows.coalesce(1).write.format("delta").mode("overwrite").save(path)
