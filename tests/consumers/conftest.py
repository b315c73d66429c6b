"""Fixtures: Kafka Connect with sinks, one for the session; a database to sink into; a stream with a topic for each table."""

import contextlib
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bridge.kafka.client import admin
from bridge.kafka.topics import make
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from infra.local.kafka import Kafka
from tests.bridge.bridge_file import bridge_file
from tests.consumers.environment import ENVIRONMENT
from tests.kafka.connect import Connect
from tests.kafka.reading import values
from tests.rules.waiting import eventually
from tests.servers import jars
from tests.servers.fix_stack import Database, served

pytest_plugins = ["tests.bridge.fix_bridge"]
_SOURCE = "jakarta/bank"
_FILES_OF_SECRETS = """\
config.providers=directory
config.providers.directory.class=org.apache.kafka.common.config.provider.DirectoryConfigProvider
"""


@pytest.fixture(scope="session")
def connect(kafka: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """Yield a running worker without connectors."""
    folder, more = tmp_path_factory.mktemp("connect"), jars.iceberg_transforms()
    yield from served(
        Connect(folder, kafka.bootstrap, jars.SINK, environment=ENVIRONMENT, more=more, settings=_FILES_OF_SECRETS)
    )


@pytest.fixture
def warehouse(database: Database) -> Iterator[Callable[[], Database]]:
    """Yield a function that makes an empty database for a sink."""
    with contextlib.ExitStack() as made:

        def make_one() -> Database:
            one = Database(database.postgres)
            made.callback(one.drop)
            return one

        yield make_one


class Running(NamedTuple):
    """A stream that a real edge and bridge write."""

    topic: str
    file: Path
    bootstrap: str
    database: Database

    def topic_of(self, table: str) -> str:
        """Return the topic of a table."""
        return f"{self.topic}.public.{table}"

    def work(self, statements: list[str], mark: str) -> None:
        """Run statements, and wait until their records are in Kafka."""
        for statement in statements:
            self.database.execute(statement)
        self.database.execute("select pg_logical_emit_message(true, 'headrace.marker', %s)", [mark])
        eventually(lambda: self._marks(mark), 120, every=0.2, saying="all is in Kafka")

    def schema(self, table: str, *options: str) -> str:
        """Return what `headrace bridge schema` prints."""
        words = [sys.executable, "-m", "headrace", "bridge", "schema", f"public.{table}", *options]
        done = subprocess.run(
            [*words, "--config", str(self.file)], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def _marks(self, mark: str) -> bool:
        # As often as there are marks: each is a logical message in the stream's own topic.
        result = [value for value in values(self.bootstrap, self.topic) if value and b'"op":"m"' in value]
        return len(result) >= int(mark)


@pytest.fixture
def stream(
    database: Database, edges: Any, kafka: Kafka, topic: Any, inside: Any, tmp_path: Path
) -> Iterator[Callable[..., Running]]:
    """Yield a function that starts a bridge and an edge over some tables, with some `[records]`."""
    with contextlib.ExitStack() as running:

        def start(ddl: str, tables: list[str], records: str) -> Running:
            settings = {"topic": topic(), "tables": {f"public.{table}": "delete" for table in tables}}
            path = bridge_file(tmp_path, kafka.bootstrap, {_SOURCE: [0]}, **settings)
            file = load(path, BridgeFile)
            make(admin(file.kafka), file)
            bridge = inside(kafka.bootstrap, {_SOURCE: [0]}, **settings)
            database.execute(ddl)
            edge = edges(database, f"amqp://127.0.0.1:{bridge.port}", more=f"[records]\n{records}\n")
            edge.init()
            running.enter_context(edge.running())
            return Running(str(settings["topic"]), path, kafka.bootstrap, database)

        yield start
