"""Fixtures: Kafka Connect with Debezium's connectors, one for the session; and the lake of a database that two edges capture."""

import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from headrace import command
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from infra.local.kafka import Kafka
from spark_jobs import load as job
from spark_jobs.silver import table_task, target_schema
from tests.debezium.binlog import Both
from tests.kafka.connect import Connect
from tests.lake.defect import as_a_load
from tests.rules.waiting import eventually
from tests.servers import jars
from tests.servers.fix_stack import served

pytest_plugins = ["tests.bridge.fix_bridge", "tests.servers.fix_mysql"]
#: Of tests/debezium/requirements.txt.
ENVIRONMENT = Path(__file__).parents[2] / ".setup" / "debezium"
#: As records are without a schema in each.
_PLAIN = "key.converter.schemas.enable=false\nvalue.converter.schemas.enable=false"


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Yield a broker that makes topics by themselves, as Connect wants them."""
    yield from served(
        Kafka(tmp_path_factory.mktemp("kafka"), settings={"auto.create.topics.enable": "true", "num.partitions": 1})
    )


@pytest.fixture(scope="session")
def connect(brokers: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """Yield a running worker without connectors."""
    folder = tmp_path_factory.mktemp("connect")
    yield from served(Connect(folder, brokers.bootstrap, jars.CONNECTORS, environment=ENVIRONMENT, settings=_PLAIN))


@pytest.fixture
def both(brokers: Kafka, inside: Callable[..., Any], connect: Connect, tmp_path: Path) -> Both:
    """Return what has an edge and Debezium capture some work in a database with a binlog."""
    return Both(brokers.bootstrap, inside, connect, tmp_path)


#: The sources of our own edge and of the one with Debezium's engine, which capture one database.
OURS, THEIRS = "jakarta/ours", "jakarta/theirs"
STREAM = "bank"


class Lake:
    """Silver with the rows of both sources in the same tables, and what `headrace verify` says of them."""

    def __init__(self, file: Path, spark: Any, verify: Callable[[], tuple[int, dict[str, Any]]]) -> None:
        self._file, self._spark, self._verify = file, spark, verify

    def load(self) -> None:
        """Load what has arrived."""
        job.run(self._spark, load(self._file, LakeFile), STREAM).check()

    def path(self, table: str) -> str:
        """Return where a table is."""
        return table_task.path(load(self._file, LakeFile), STREAM, table)

    def verdicts(self) -> dict[tuple[str, str], str]:
        """Return what `verify` says of each table of each source."""
        _, report = self._verify()
        assert not report["failed"]
        return {(each["source"], each["table"]): each["verdict"] for each in report["tables"]}

    def check(self, database: Any, tables: set[str]) -> None:
        """Fail unless both sources are proved equal while rows are written, and have the same rows of each table."""
        with written_to(database):
            self.load()
            equal = {(source, table): "equal" for source in (OURS, THEIRS) for table in tables}
            assert self.verdicts() == equal
        eventually(
            lambda: self._has_all(database, tables), 240, every=1, saying="all rows of both sources are in silver"
        )
        for table in tables:
            rows = [self._rows(source, table) for source in (OURS, THEIRS)]
            assert rows[0] == rows[1], f"rows of {table} are others"

        # A row too few in Debezium's half is found, once a change behind the snapshot shows that nothing is on its way.
        (table,) = (each for each in tables if each.endswith(".written"))
        with as_a_load(self._spark):
            self._spark.sql(f"delete from delta.`{self.path(table)}` where _source = '{THEIRS}' and id = 1")
        with written_to(database):
            self.load()
            assert self.verdicts() == equal | {(THEIRS, table): "not equal"}

    def _has_all(self, database: Any, tables: set[str]) -> bool:
        self.load()
        return all(
            database.execute(f"select count(*) from {table}") == [(self._rows(source, table).total(),)]
            for source in (OURS, THEIRS)
            for table in tables
        )

    def _rows(self, source: str, table: str) -> Counter[str]:
        frame = self._spark.read.format("delta").load(self.path(table)).where(f"_source = '{source}'")
        return Counter(str(row) for row in frame.drop(*target_schema.OWN).collect())


@contextmanager
def written_to(database: Any) -> Iterator[None]:
    """Let rows be inserted and updated in the table `written`, one transaction after the other."""
    ended, count = Event(), [0]

    def write() -> None:
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            cursor.execute("select coalesce(max(id), 0) from written")
            ((first,),) = cursor.fetchall()
            while not ended.wait(0.02):
                count[0] += 1
                cursor.execute("begin")
                cursor.execute(f"insert into written values ({first + count[0]}, 0)")
                cursor.execute(f"update written set n = n + 1 where id > {first + count[0] - 3}")
                cursor.execute("commit")

    writer = Thread(target=write)
    writer.start()
    try:
        eventually(lambda: count[0] > 2, 60, saying="rows are written")
        yield
    finally:
        ended.set()
        writer.join()


@pytest.fixture
def lake(
    kafka: Kafka,
    topic: Callable[..., str],
    inside: Callable[..., Any],
    spark: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str, str], tuple[Lake, str]]:
    """Return what makes a lake of both sources, at one database, and the address of its bridge."""

    def make(engine: str, address: str) -> tuple[Lake, str]:
        name = topic(2)
        bridge = inside(kafka.bootstrap, {OURS: [0], THEIRS: [1]}, topic=name)
        path = tmp_path / "lake.toml"
        text = (
            f'[lake]\nroot = "lake"\n[kafka]\nbootstrap = "{kafka.bootstrap}"\n[streams.{STREAM}]\ntopic = "{name}"\n'
        )
        text += f"sources = {json.dumps([OURS, THEIRS])}\n"
        for source in (OURS, THEIRS):
            text += f'[sources."{source}"]\nvia = "direct"\n[sources."{source}".{engine}]\n{address}\n'
        path.write_text(text)

        def verify() -> tuple[int, dict[str, Any]]:
            monkeypatch.setattr(sys, "argv", ["headrace", "verify", "--config", str(path), "--json"])
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                command.main()
            answer = capsys.readouterr()
            assert answer.out, f"exit code {ended.value.code}: {answer.err}"
            return int(ended.value.code or 0), json.loads(answer.out)

        return Lake(path, spark, verify), f"amqp://127.0.0.1:{bridge.port}"

    return make
