"""Transactions that a bridge left open when it died: they hold back the positions in them until Kafka's time limit ends them.

A bridge that takes the sources over ends them earlier: it initialises the transactional ids of the one that committed last. That
is harmless where that bridge lives: its lanes initialise their ids again, and the sources that it still has go on.
"""

import logging
import time
from collections.abc import Collection

from bridge.kafka.client import KafkaException, TopicPartition
from bridge.kafka.entries import reading
from bridge.kafka.producer import KafkaProducer
from bridge.model.ports import Partition
from bridge.model.position_text import parse
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import ReplicationError

_log = logging.getLogger(__name__)

_PATIENCE = 2.0
#: A bridge's transactions are not ended again before so many seconds.
_AGAIN_SECONDS = 15.0
_SMALLEST = 1 << 20


class Leftovers:
    """What other instances of the group left open."""

    def __init__(self, connection: KafkaConnection, instance: str, lanes: Collection[str]) -> None:
        self._connection = connection
        self._instance = instance
        self._lanes = lanes
        self._ended: dict[str, float] = {}

    def end(self, group: str, places: Collection[Partition]) -> None:
        """End the open transactions of the bridges that committed in some partitions last; errors are only logged."""
        now = time.monotonic()
        try:
            for instance in self._instances(group, places) - {self._instance}:
                if now - self._ended.get(instance, -_AGAIN_SECONDS) < _AGAIN_SECONDS:
                    continue
                self._ended[instance] = now
                _log.warning("positions are held back by open transactions, which end now: bridge %s", instance)
                for lane in self._lanes:
                    KafkaProducer(self._connection, f"{self._connection.prefix}.{instance}.{lane}", _SMALLEST).discard()
        except (KafkaException, ReplicationError) as error:
            _log.debug("open transactions could not be ended: %s", error)

    def _instances(self, group: str, places: Collection[Partition]) -> set[str]:
        with reading(self._connection, group, stable=False) as client:
            found = client.committed([TopicPartition(*place) for place in places], timeout=_PATIENCE)
        instances = set()
        for each in found:
            try:
                instances.add(parse(each.metadata or "").bridge.split("/", 3)[3])
            except (ReplicationError, IndexError):
                continue
        return instances
