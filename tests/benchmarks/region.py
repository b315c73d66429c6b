"""One source's way to Kafka, as a benchmark runs it: a bridge and an edge with their files, made at both ends and not started."""

from pathlib import Path
from typing import NamedTuple

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from infra.local.server import free_port
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised


class Region(NamedTuple):
    """Bridge and edge, and the edge's file."""

    bridge: Supervised
    edge: Supervised
    edge_file: Path


def region(folder: Path, name: str, postgres: Postgres, kafka: Kafka) -> Region:
    """Return the way of source `bench/NAME`: database, stream, slot and publication have the same name."""
    port = free_port()
    bridge_file = files.bridge(
        folder / f"bridge-{name}.toml",
        bootstrap=kafka.bootstrap,
        listen=f"127.0.0.1:{port}",
        sources=[f"bench/{name}"],
        stream=name,
    )
    edge_file = files.edge(
        folder / f"edge-{name}.toml",
        source=f"bench/{name}",
        postgres=postgres,
        database=name,
        interconnect=f"amqp://127.0.0.1:{port}",
        names=name,
    )
    headrace("bridge", "init", "--config", str(bridge_file))
    headrace("edge", "init", "--config", str(edge_file))
    bridge, edge = (
        Supervised(part, command(part, "run", "--config", str(path)), log=folder / f"{part}-{name}.log")
        for part, path in (("bridge", bridge_file), ("edge", edge_file))
    )
    return Region(bridge, edge, edge_file)
