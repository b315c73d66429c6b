"""Fixtures: Kafka Connect with Debezium's connectors, one for the session."""

from collections.abc import Iterator

import pytest

from infra.local.kafka import Kafka
from tests.debezium.connect import Connect
from tests.fix_stack import served

pytest_plugins = ["tests.fix_bridge"]


@pytest.fixture(scope="session")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Yield a broker that makes topics by themselves, as Connect wants them."""
    yield from served(
        Kafka(tmp_path_factory.mktemp("kafka"), settings={"auto.create.topics.enable": "true", "num.partitions": 1})
    )


@pytest.fixture(scope="session")
def connect(brokers: Kafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connect]:
    """Yield a running worker without connectors."""
    yield from served(Connect(tmp_path_factory.mktemp("connect"), brokers.bootstrap))
