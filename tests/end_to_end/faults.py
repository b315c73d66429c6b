"""What can go wrong on the way, as a seeded plan: which part is struck when, the same again for the same seed."""

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from tests.end_to_end.pipeline import Pipeline, Region


class Fault(NamedTuple):
    """One blow, and how many changes of each source have to get through before it."""

    name: str
    after_changes: int
    strike: Callable[[], None]

    @property
    def kind(self) -> str:
        """What happens, without where."""
        return self.name.partition(":")[0]


def one_of_each(pipeline: Pipeline, seed: int) -> list[Fault]:
    """Return each kind of fault once, in a random order and at random regions."""
    results: dict[str, Fault] = {}
    for fault in every(pipeline, seed):
        results.setdefault(fault.kind, fault)
    return list(results.values())


def every(pipeline: Pipeline, seed: int) -> list[Fault]:
    """Return at least a dozen faults in a random order, every kind in every region among them."""
    chance = random.Random(seed)
    blows: list[tuple[str, Callable[[], None]]] = [
        *[("kill -9 the bridge", pipeline.bridge.kill)] * 3,
        *[("kill -9 Kafka", partial(_crash, pipeline.kafka))] * 2,
    ]
    for region in pipeline.regions:
        blows += [
            *[(f"kill -9 the edge: {region.source}", region.edge.kill)] * 2,
            (f"cut the wire: {region.source}", region.wire.cut),
            (f"refuse connections for a while: {region.source}", partial(_refuse, region)),
            (f"restart the database: {region.source}", partial(_restart, region)),
            (f"crash the database: {region.source}", partial(_crash, region.postgres)),
        ]
    chance.shuffle(blows)
    return [Fault(name, chance.randrange(1, 400), strike) for name, strike in blows]


def _crash(server: Kafka | Postgres) -> None:
    server.kill()
    server.start()


def _restart(region: Region) -> None:
    region.postgres.stop("fast")
    region.postgres.start()


def _refuse(region: Region) -> None:
    """Close the door, and open it when the region has committed more behind it."""
    region.wire.stop()
    region.wait_for_log(100_000)
    region.wire.start()
