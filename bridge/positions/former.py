"""Positions of former releases: each source had a consumer group and a transactional id of its own, `headrace.REGION/NAME`.

At the first start a source's former producer is fenced, so that a former bridge that still runs commits nothing more; the
position is read, and written back in the present format, which former bridges refuse. From then on it is in the group of bridges.
"""

import logging

from bridge.kafka.client import TopicPartition
from bridge.kafka.entries import commit_offsets, newest_of, read_topics, reading
from bridge.kafka.errors import translated
from bridge.kafka.producer import KafkaProducer
from bridge.model.ports import Committed
from bridge.model.position_text import position_text
from bridge.model.route import SourceRoute
from headrace.configuration.kafka import KafkaConnection

_log = logging.getLogger(__name__)
_SMALLEST = 1 << 20


def former_group(source: str) -> str:
    """Return the group, and the transactional id, of a source in former releases."""
    return f"headrace.{source}"


def read_former(connection: KafkaConnection, route: SourceRoute) -> Committed | None:
    """Return what a former release committed for a source; None for nothing."""
    group = former_group(route.source)
    with reading(connection, group) as client:
        entries = read_topics(client, group, {route.topic})
    return newest_of(entries) if entries else None


def take_over_former(connection: KafkaConnection, route: SourceRoute) -> Committed | None:
    """Return what a former release committed for a source, once no bridge of that release can commit any more."""
    if read_former(connection, route) is None:
        return None
    group = former_group(route.source)
    KafkaProducer(connection, group, _SMALLEST).discard()
    found = read_former(connection, route)
    if found is not None:
        text = position_text(route.source, found.position, found.bridge)
        offsets = [TopicPartition(*place, offset, metadata=text) for place, offset in found.offsets.items()]
        with translated(f"mark the positions of group {group}"):
            commit_offsets(connection, group, offsets)
        _log.info("%s: its position is taken over from the group %s", route.source, group)
    return found
