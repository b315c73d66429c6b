"""Fixtures: Kafka Connect with Debezium's connectors, one for the session."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local import jars
from infra.local.kafka import Kafka
from tests.fix_stack import served
from tests.kafka_connect import Connect

pytest_plugins = ["tests.fix_bridge"]
#: Of tests/debezium/requirements.txt.
_ENVIRONMENT = Path(__file__).parents[2] / ".setup" / "debezium"
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
    yield from served(Connect(folder, brokers.bootstrap, jars.CONNECTORS, environment=_ENVIRONMENT, settings=_PLAIN))
