"""One Spark session for a whole run, and a lake of its own for each test."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs import session as made_for_users
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import load as silver
from tests.lake.feed import Feed
from tests.lake.logged import LoggedLake

_NOWHERE = """
[lake]
root = "."
[kafka]
bootstrap = "127.0.0.1:1"
[streams.s]
sources = ["a/b"]
"""
#: Two, so that rows are still divided. A lake's file could say it as well; commands set the session anew by theirs.
_FEW = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "1"}
#: Plans of the past that tests look at.
_FEW |= {"spark.sql.ui.retainedExecutions": "1000"}

_ONE_COLLECTOR = "-XX:+UseSerialGC"
#: Of the JVMs that commands and Airflow's tasks start: they live for seconds.
_SHORT_LIVES = f"-XX:TieredStopAtLevel=1 {_ONE_COLLECTOR}"
#: Of all that Spark does in them and our settings do not name: with a handful of rows, what makes a large query quicker costs
#: more than it gains.
_HANDFULS = (
    " -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
    " -Dspark.sql.adaptive.enabled=false -Dspark.sql.ui.explainMode=simple"
    " -Dspark.sql.leafNodeDefaultParallelism=1 -Dspark.sql.files.minPartitionNum=1"
)


@pytest.fixture(scope="session", autouse=True)
def short_lived_jvms() -> Iterator[None]:
    """Let the JVMs of Spark that commands start compile in haste: compiling for speed costs them more than it gains."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_SUBMIT_OPTS", _SHORT_LIVES + _HANDFULS)
        patch.setenv("SPARK_LAUNCHER_OPTS", _SHORT_LIVES)
        yield


@pytest.fixture
def compiled_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what a test starts run Spark as a user's does, with queries compiled and adapted."""
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", _SHORT_LIVES)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the run's Spark session."""
    file = tmp_path_factory.mktemp("spark") / "lake.toml"
    file.write_text(_NOWHERE)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _FEW.items():
            patch.setitem(made_for_users._SETTINGS, name, value)
        with pytest.MonkeyPatch.context() as long_lived:
            # It lives for minutes: a load takes a fifth less work once all is compiled well. Most objects die young.
            long_lived.setenv("SPARK_SUBMIT_OPTS", f"{_ONE_COLLECTOR} -Xmn600m{_HANDFULS}")
            made = made_for_users.session(load(file, LakeFile), name="tests")
        yield made
        made.stop()


@pytest.fixture
def lake_file(lake_in: Callable[[Path], Callable[..., LakeFile]], tmp_path: Path) -> Callable[..., LakeFile]:
    """Return a function that makes a lake in the test's folder, of streams with their topics."""
    return lake_in(tmp_path)


@pytest.fixture(scope="session")
def lake_in(kafka: Any) -> Callable[[Path], Callable[..., LakeFile]]:
    """Return a function that returns what makes a lake in a folder."""

    def make(
        folder: Path,
        *,
        bootstrap: str = "",
        records_per_batch: int = 2_000_000,
        deletes: str = "hard",
        topic_per_table: bool = False,
        root: str = "lake",
        settings: str = "",
        **streams: str,
    ) -> LakeFile:
        # Ahead of the streams, to which tests add.
        text = f'[spark.settings]\n"spark.sql.shuffle.partitions" = "2"\n{settings}'
        text += f'[lake]\nroot = "{root}"\n[kafka]\nbootstrap = "{bootstrap or kafka.bootstrap}"\n'
        for stream, topic in streams.items():
            text += f'[streams.{stream}]\ntopic = "{topic}"\nrecords_per_batch = {records_per_batch}\n'
            text += f'sources = ["jakarta/bank", "london/bank"]\ndeletes = "{deletes}"\n'
            text += "topic_per_table = true\n" * topic_per_table
        file = folder / "lake.toml"
        file.write_text(text)
        return load(file, LakeFile)

    return lambda folder: partial(make, folder)


@pytest.fixture(scope="session")
def feed(kafka: Any, topic: Callable[..., str]) -> Callable[..., Feed]:
    """Return a function that makes a topic and a feed of one source into one of its partitions."""

    def make(
        source: str = "jakarta/bank",
        *,
        into: str = "",
        partition: int = 0,
        partitions: int = 1,
        topic_per_table: bool = False,
        **settings: Any,
    ) -> Feed:
        name = into or topic(partitions, **settings)
        return Feed(kafka.bootstrap, name, source, partition, topic_per_table=topic_per_table)

    return make


@pytest.fixture
def loaded(spark: SparkSession) -> Callable[..., Any]:
    """Return a function that loads a stream's bronze and silver, and returns silver's report."""

    def load_both(lake: LakeFile, stream: str = "bank") -> Any:
        bronze.load(spark, lake, stream)
        return silver.load(spark, lake, stream)

    return load_both


@pytest.fixture
def logged_lake(spark: SparkSession, tmp_path: Path) -> Callable[..., LoggedLake]:
    """Return a function that makes a lake whose bronze needs no Kafka, in a folder of its own."""
    logged_lakes: list[LoggedLake] = []

    def make(settings: str = "") -> LoggedLake:
        logged_lakes.append(LoggedLake(spark, tmp_path / f"lake{len(logged_lakes)}", settings))
        return logged_lakes[-1]

    return make
