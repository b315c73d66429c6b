"""Fixtures: real servers, one of each shared by the whole session, and private ones for tests that stop or kill them.

Everything lies under pytest's own temporary folders and is deleted with its fixture; servers end with the session even
if that is killed.
"""

import itertools
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, TypeVar

import psycopg2
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from infra.local.server import Server
from tests.rules.waiting import eventually
from tests.servers.older_postgres import OlderPostgres

_numbers = itertools.count(1)


class Database:
    """A fresh database of the shared cluster; `name` is fit for slots and publications too."""

    def __init__(self, postgres: Postgres) -> None:
        self.postgres = postgres
        self.name = f"d{next(_numbers)}"
        self.dsn = postgres.create_database(self.name)
        self._connection: Any = None

    def connect(self) -> Any:
        """Return a new connection of psycopg2's that commits by itself; the caller closes it."""
        connection = psycopg2.connect(self.dsn)
        connection.autocommit = True
        return connection

    def execute(self, sql: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Run a statement, which commits by itself, and return its rows if it has any."""
        if self._connection is None:
            self._connection = self.connect()
        with closing(self._connection.cursor()) as cursor:
            cursor.execute(sql, parameters)
            return cursor.fetchall() if cursor.description else []

    def drop(self) -> None:
        """Drop the database with its slots, whoever is connected."""
        if self._connection is not None:
            self._connection.close()
        end = f"""
            SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{self.name}';
            SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots
            WHERE database = '{self.name}' AND NOT active;
            SELECT count(*) = 0 FROM pg_replication_slots WHERE database = '{self.name}'
        """
        eventually(lambda: self.postgres.psql(end).endswith("t"), saying=f"the slots of {self.name} are dropped")
        self.postgres.psql(f"DROP DATABASE {self.name} WITH (FORCE)")


def reload(postgres: Postgres) -> None:
    """Have a cluster read its settings and rules again; return once whoever connects meets them, which takes it a moment."""
    asked = "SELECT pg_conf_load_time()"
    before = postgres.psql(asked)
    postgres.psql("SELECT pg_reload_conf()")
    eventually(lambda: postgres.psql(asked) != before, saying="the settings are read again")


S = TypeVar("S", bound=Server)


def served(server: S) -> Iterator[S]:
    """Yield a server while it runs, and delete it."""
    try:
        server.start()
        yield server
    finally:
        server.delete()


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """Yield a running cluster, shared by the session: do not stop it."""
    yield from served(Postgres(tmp_path_factory.mktemp("postgres"), settings={"max_prepared_transactions": 10}))


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Yield a running broker, shared by the session: do not stop it."""
    yield from served(Kafka(tmp_path_factory.mktemp("kafka")))


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    """Yield a fresh database of the shared cluster."""
    made = Database(postgres)
    yield made
    made.drop()


@pytest.fixture(scope="session")
def topic(kafka: Kafka) -> Callable[..., str]:
    """Return a function that makes a fresh topic in the shared broker and returns its name."""

    def make(partitions: int = 1, name: str = "", **settings: object) -> str:
        name = name or f"t{next(_numbers)}"
        config = {key.replace("_", "."): str(value) for key, value in settings.items()}
        admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
        admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
        # Made is not yet known to everybody who asks.
        eventually(lambda: len(admin.list_topics(name, timeout=60).topics[name].partitions) == partitions)
        return name

    return make


@pytest.fixture
def private_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Postgres]]:
    """Yield a function that makes and starts a cluster for this test alone; it takes Postgres's options, and a `release`."""
    with ExitStack() as made:

        def make(**options: Any) -> Postgres:
            kind = OlderPostgres if "release" in options else Postgres
            server = kind(tmp_path_factory.mktemp("postgres"), **options)
            made.callback(server.delete)
            server.start()
            return server

        yield make


@pytest.fixture
def private_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Kafka]]:
    """Yield a function that makes and starts a broker for this test alone; it takes Kafka's options, and where its data go."""
    with ExitStack() as made:

        def make(data: Path | None = None, **options: Any) -> Kafka:
            server = Kafka(tmp_path_factory.mktemp("kafka"), **options)
            made.callback(server.delete)
            if data is not None:
                (server.folder / "data").symlink_to(data)
            server.start()
            return server

        yield make
