"""A pipeline for one test: servers of its own, because they are killed."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.end_to_end.pipeline import Pipeline

SOURCES = ("jakarta/bank", "london/bank")


@pytest.fixture
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    """Yield a pipeline whose servers run and whose parts are not yet started."""
    folder: Path = tmp_path_factory.mktemp("e2e")
    servers = {source: Postgres(folder / source.partition("/")[0]) for source in SOURCES}
    kafka = Kafka(folder / "kafka")
    try:
        kafka.start()
        for server in servers.values():
            server.start()
        made = Pipeline(folder, kafka, servers)
        try:
            yield made
        finally:
            made.stop()
    finally:
        kafka.kill()
        for server in servers.values():
            server.kill()
            server.delete()
