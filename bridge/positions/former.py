"""Positions of former releases: each source had a consumer group and a transactional id of its own, `headrace.REGION/NAME`.

At the first start a source's former producer is fenced, so that a former bridge that still runs commits nothing more; the
position is read, and written back in the present format, which former bridges refuse. From then on it is in the group of bridges.
Called where that group has nothing of a source (bridge/positions/read.py).
"""

import logging
from collections import deque
from collections.abc import Collection, Mapping
from threading import Thread
from typing import Any

from bridge.kafka.client import TIMEOUT, TopicPartition
from bridge.kafka.entries import ForeignOffset, commit_offsets, newest_of, read_topics, reading
from bridge.kafka.errors import translated
from bridge.kafka.producer import KafkaProducer
from bridge.model.chain import position_text
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute
from headrace.configuration.kafka import KafkaConnection
from headrace.errors import NotConnected, ReplicationError

_log = logging.getLogger(__name__)

_SMALLEST = 1 << 20
#: Groups that are taken over at once: each takes half a second, nearly all of it waiting.
_MOST_GROUPS = 16

Result = Committed | ReplicationError | None


def former_group(source: str) -> str:
    """Return the group, and the transactional id, of a source in former releases."""
    return f"headrace.{source}"


def read_former(connection: KafkaConnection, route: SourceRoute) -> Committed | None:
    """Return what a former release committed for a source; None for nothing."""
    group, refused = former_group(route.source), dict[Partition, ReplicationError]()
    with reading(connection, group) as client:
        entries = read_topics(client, group, {route.topic}, refused)
    committed = newest_of(entries) if entries else None
    for error in refused.values():
        raise error.within(route, committed, entries) if isinstance(error, ForeignOffset) else error
    return committed


def take_over_former(connection: KafkaConnection, route: SourceRoute) -> Committed | None:
    """Return what a former release committed for a source, once no bridge of that release can commit any more."""
    if read_former(connection, route) is None:
        return None
    group = former_group(route.source)
    KafkaProducer(connection, group, _SMALLEST).discard()
    committed = read_former(connection, route)
    if committed is not None:
        text = position_text(route.source, committed.position, committed.bridge)
        offsets = [TopicPartition(*place, offset, metadata=text) for place, offset in committed.offsets.items()]
        with translated(f"mark the positions of group {group}"):
            commit_offsets(connection, group, offsets)
        _log.info("%s: its position is taken over from the group %s", route.source, group)
    return committed


def find_former(connection: KafkaConnection, admin: Any, routes: Collection[SourceRoute]) -> Mapping[str, Result]:
    """Return what a former release committed for each of some sources, None for nothing, or why it is not known.

    Nobody is asked for a group that may be there: all brokers have to name theirs.
    """
    unknown: ReplicationError | None = None
    groups: Collection[str] = ()
    try:
        with translated("read the list of consumer groups", admin):
            listed = admin.list_consumer_groups(request_timeout=TIMEOUT).result()
    except ReplicationError as error:
        unknown = error
    else:
        groups = {each.group_id for each in listed.valid}
        if listed.errors:
            unknown = NotConnected("Kafka: not all brokers have named their consumer groups")
    committed: dict[str, Result] = dict.fromkeys((each.source for each in routes), unknown)
    return committed | _take_over(connection, [route for route in routes if former_group(route.source) in groups])


def _take_over(connection: KafkaConnection, routes: Collection[SourceRoute]) -> dict[str, Result]:
    """Take many over at once; what goes wrong with one is no other source's affair."""
    committed: dict[str, Result] = {}
    waiting, unexpected = deque(routes), list[BaseException]()

    def work() -> None:
        while True:
            try:
                route = waiting.popleft()
            except IndexError:
                return
            try:
                committed[route.source] = take_over_former(connection, route)
            except ReplicationError as error:
                committed[route.source] = error
            except BaseException as error:  # noqa: BLE001 - raised again by the caller's thread.
                unexpected.append(error)

    threads = [Thread(target=work, name="former groups", daemon=True) for _ in range(min(len(routes), _MOST_GROUPS))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if unexpected:
        raise unexpected[0]
    return committed
