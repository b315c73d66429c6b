"""Fixtures: Kafka Connect with Debezium's connectors, one for the session."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.local.kafka import Kafka
from tests.debezium.binlog import Both
from tests.kafka.connect import Connect
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
