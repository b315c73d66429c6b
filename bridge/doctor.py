"""`headrace bridge doctor`: checks everything that a bridge needs, and reports what is wrong and what fixes it.

It changes nothing, and may be run while bridges run. Called by the command.
"""

import datetime as dt
import socket
import time
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from bridge.kafka.checks import deliveries as look_at_deliveries
from bridge.kafka.checks import look_at_group, look_at_holders
from bridge.kafka.checks import registry as look_at_registry
from bridge.kafka.checks import requests as look_at_requests
from bridge.kafka.client import TIMEOUT, TRANSACTION_TIMEOUT, admin, broker_resource, topic_resource
from bridge.kafka.entries import read_topics, reading
from bridge.kafka.errors import translated
from bridge.kafka.topics import Wanted, check, wanted
from bridge.model.ports import Committed, Partition
from bridge.model.route import SourceRoute, routes
from bridge.positions.read import check_assignment
from bridge.positions.survey import positions_of, withheld_tables
from headrace import process
from headrace.amqp.errors import hide_password
from headrace.certificates import files
from headrace.configuration.bridge import BridgeFile
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.findings import Check, Finding, is_wrong, run

_PORTS = {"amqp": 5672, "amqps": 5671}
_SECONDS = 5.0
_AGAIN_SECONDS = 0.5
#: A bridge commits every source's position once an hour; one that is older than this, in hours, is committed by nobody.
_OLD_HOURS = 3
_DAY = 86_400_000
_BROKERS = "Look at the brokers."
#: Files and connections that a bridge has open at most, about: Kafka's clients and strangers; and in addition for each source.
_DESCRIPTORS, _OF_SOURCE = 800, 2


class Cluster(NamedTuple):
    """What the checks look at."""

    file: BridgeFile
    client: Any

    def described(self, resource: Any) -> dict[str, str]:
        """Return the settings of a topic or broker."""
        with translated("read settings"):
            asked = self.client.describe_configs([resource], request_timeout=TIMEOUT)
            return {name: entry.value for name, entry in next(iter(asked.values())).result().items()}

    def metadata(self) -> Any:
        """Return brokers and topics."""
        with translated("read the list of topics"):
            return self.client.list_topics(timeout=TIMEOUT)


def examine(file: BridgeFile) -> Iterator[Finding]:
    """Yield what all checks find."""
    cluster = Cluster(file, admin(file.kafka))
    first = list(run((kafka,), cluster))
    yield from first
    yield from run(_HERE if is_wrong(first) else (*_IN_KAFKA, *_HERE), cluster)


def kafka(cluster: Cluster) -> Iterator[Finding]:
    """Look at the brokers, and at the settings of theirs that transactions and positions rest on."""
    brokers = cluster.metadata().brokers
    yield Finding("Kafka", "ok", f"{len(brokers)} brokers at {cluster.file.kafka.bootstrap}")
    try:
        settings = cluster.described(broker_resource(next(iter(brokers))))
    except NeedsOperator:
        problem = "the brokers' settings are not shown to this user, and are not looked at"
        yield Finding(
            "Kafka settings",
            "warning",
            problem,
            "DescribeConfigs on the cluster, or look with an administrator's user.",
        )
        return
    longest = int(settings["transaction.max.timeout.ms"])
    if longest < TRANSACTION_TIMEOUT:
        fix = f"transaction.max.timeout.ms={TRANSACTION_TIMEOUT} or more at the brokers"
        yield Finding("transaction.max.timeout.ms", "wrong", f"{longest}: transactions are refused", fix)
    kept = int(settings["offsets.retention.minutes"])
    if kept < 24 * 60:
        problem = f"{kept}: positions of sources that no bridge serves for so long are forgotten"
        yield Finding("offsets.retention.minutes", "warning", problem, "offsets.retention.minutes=10080 at the brokers")
    for name in ("offsets.topic.replication.factor", "transaction.state.log.replication.factor"):
        if len(brokers) > 1 and int(settings[name]) < 2:
            problem = "1: positions or transactions are lost with one broker"
            yield Finding(name, "warning", problem, f"{name}=3 at the brokers, before their first start")


def ledgers(cluster: Cluster) -> Iterator[Finding]:
    """Look at Kafka's own topics for positions and transactions: without them nothing is committed."""
    metadata = cluster.metadata().topics
    for topic in ("__consumer_offsets", "__transaction_state"):
        # A user may not be allowed to see them, and they are made when they are first used.
        if topic not in metadata or not metadata[topic].partitions:
            continue
        try:
            least = int(cluster.described(topic_resource(topic))["min.insync.replicas"])
        except NeedsOperator:
            least = 1
        if short := _cannot_be_written(metadata[topic].partitions.values(), least):
            yield Finding(topic, "wrong", short, _BROKERS)


def _cannot_be_written(partitions: Iterable[Any], least: int) -> str:
    """Return what keeps records out of partitions of a topic; empty where nothing does."""
    partitions = list(partitions)
    offline = [partition.id for partition in partitions if partition.leader < 0]
    short = [partition.id for partition in partitions if partition.leader >= 0 and len(partition.isrs) < least]
    problems = [f"partitions {offline} have no leader"] if offline else []
    if short:
        problems.append(f"partitions {short} have fewer replicas in sync than min.insync.replicas={least}")
    return f"{', and '.join(problems)}: nothing can be written to them" if problems else ""


def topics(cluster: Cluster) -> Iterator[Finding]:
    """Look at each stream's topic: that it is as `run` needs it, and survives a broker."""
    needed = wanted(cluster.file, cluster.metadata().topics)
    for topic, need in needed.items():
        yield from _alone("topic", partial(_topic, topic=topic, need=need), cluster)
    for name, stream in cluster.file.streams.items():
        if stream.tables:
            own = cluster.file.topic(name)
            problem = (
                f"stream {name}: records of tables without a topic go to {own}; 'headrace status' names those that came"
            )
            yield Finding("tables", "ok", problem)


def _topic(cluster: Cluster, topic: str, need: Wanted) -> Iterator[Finding]:
    largest = check(cluster.client, {topic: need})[topic]
    yield Finding("topic", "ok", f"{topic}: its sources' partitions are there, records up to {largest / 1e6:.0f} MB")
    settings = cluster.described(topic_resource(topic))
    partitions = cluster.metadata().topics[topic].partitions.values()
    replicas = min(len(partition.replicas) for partition in partitions)
    least = int(settings["min.insync.replicas"])
    behind = [partition.id for partition in partitions if len(partition.isrs) < len(partition.replicas)]
    if short := _cannot_be_written(partitions, least):
        yield Finding("topic", "wrong", f"{topic}: {short}", _BROKERS)
    elif behind:
        problem = f"{topic}: replicas of partitions {behind} are behind, or their brokers down"
        yield Finding("topic", "warning", problem, _BROKERS)
    if replicas == 1:
        problem = f"{topic}: 1 replica: it is lost with a broker's disk"
        yield Finding(
            "topic", "warning", problem, "Give it 3 with kafka-reassign-partitions; replication = 3 for new topics."
        )
    elif least >= replicas:
        problem = f"{topic}: min.insync.replicas={least} of {replicas}: one broker that is down stops it"
        yield Finding("topic", "warning", problem, f"Set min.insync.replicas={replicas - 1} on the topic.")
    kept = int(settings["retention.ms"])
    if 0 <= kept < _DAY and "delete" in settings["cleanup.policy"]:
        problem = f"{topic}: kept for {kept / 3_600_000:.1f} hours: a load that is down for longer misses records"
        yield Finding("topic", "warning", problem, "Raise retention.ms on the topic.")


def positions(cluster: Cluster) -> Iterator[Finding]:
    """Look at each source's committed position: that it is in the partitions of the file, and somebody keeps it alive."""
    yield from _alone("position", _positions, cluster)


def _positions(cluster: Cluster) -> Iterator[Finding]:
    committed = positions_of(cluster.file)
    for route in routes(cluster.file).values():
        yield from _alone("position", partial(_position, route=route, committed=committed[route.source]), cluster)


def _position(
    _cluster: Cluster, route: SourceRoute, committed: Committed | ReplicationError | None
) -> Iterator[Finding]:
    if isinstance(committed, ReplicationError):
        yield Finding("position", "wrong", f"{route.source}: {committed.message}", committed.hint)
        return
    check_assignment(route, committed)
    if committed is None or committed.position is None:
        yield Finding("position", "ok", f"{route.source}: none yet: its first batch starts an epoch")
        return
    hours = (dt.datetime.now(dt.UTC) - dt.datetime.fromisoformat(committed.at)).total_seconds() / 3600
    if hours > _OLD_HOURS:
        problem = f"{route.source}: {committed.position}, committed {hours:.0f} hours ago: no bridge serves it"
        yield Finding(
            "position", "warning", problem, "Start a bridge before Kafka forgets it (offsets.retention.minutes)."
        )
    else:
        yield Finding("position", "ok", f"{route.source}: {committed.position}")
    if waiting := withheld_tables(committed):
        problem = f"{route.source}: withheld, since the registry refuses their schemas: {', '.join(sorted(waiting))}"
        fix = "'headrace status' shows the registry's reason. Allow the changes there (PUT /config/SUBJECT, NONE)."
        yield Finding("tables", "warning", problem, fix)


def group(cluster: Cluster) -> Iterator[Finding]:
    """Look whether the group of bridges is this environment's alone."""
    yield from _alone("group", _group, cluster)


def _group(cluster: Cluster) -> Iterator[Finding]:
    file = cluster.file
    by_source = routes(file)
    own = {route.topic for route in by_source.values()}
    yield from look_at_group(cluster.client, file.group, own)
    # Of which sources they are is looked at with the positions.
    refused: dict[Partition, ReplicationError] = {}
    with reading(file.kafka, file.group, stable=False) as client:
        yield from look_at_holders(
            file.group, read_topics(client, file.group, own, refused, by_source.values()), by_source
        )
    places = {place for route in by_source.values() for place in route.places}
    for place in refused.keys() - places:
        yield Finding("group", "wrong", refused[place].message, refused[place].hint)


def _alone(name: str, check: Check[Cluster], cluster: Cluster) -> Iterator[Finding]:
    """Yield what a check of one thing finds, so that it does not end those of the others."""
    until = time.monotonic() + TIMEOUT
    while True:
        try:
            yield from list(check(cluster))
        except ReplicationError as error:
            # A broker that has just started does not know all yet.
            if isinstance(error, NotConnected | Retryable) and time.monotonic() < until:
                time.sleep(_AGAIN_SECONDS)
                continue
            yield Finding(name, "wrong", error.message, error.hint)
        return


def deliveries(cluster: Cluster) -> Iterator[Finding]:
    """Look at each delivery's two topics, and at how much of the first nobody has accepted."""
    for name in cluster.file.deliveries:
        yield from _alone("delivery", lambda cluster, name=name: look_at_deliveries(cluster.file, name), cluster)  # type: ignore[misc]


def requests(cluster: Cluster) -> Iterator[Finding]:
    """Look at the topics of requests to edges and of their answers."""
    yield from _alone("requests", lambda cluster: look_at_requests(cluster.file, cluster.client), cluster)


def open_files(cluster: Cluster) -> Iterator[Finding]:
    """Look at the limit of open files."""
    sources = sum(len(stream.sources) for stream in cluster.file.streams.values())
    yield from process.examine_open_files(_DESCRIPTORS + _OF_SOURCE * sources)


def certificates(cluster: Cluster) -> Iterator[Finding]:
    """Look at the certificates towards edges, routers and Kafka, where there are any."""
    for name, section in (("interconnect", cluster.file.interconnect), ("kafka", cluster.file.kafka)):
        if section.certificate is None and section.authority is None:
            continue
        warnings = files.examine(section)
        yield from (Finding("certificates", "warning", f"[{name}] {warning}", "Renew it.") for warning in warnings)
        if not warnings:
            yield Finding("certificates", "ok", f"[{name}] readable, and valid for long enough")


def registry(cluster: Cluster) -> Iterator[Finding]:
    """Look whether the schema registry answers, and takes the login."""
    if (section := cluster.file.registry) is not None:
        yield from _alone("registry", lambda _cluster: look_at_registry(section), cluster)


def interconnect(cluster: Cluster) -> Iterator[Finding]:
    """Look whether the port to listen on is free or listened on, or whether what is connected out to answers."""
    listen = cluster.file.interconnect.listen
    if listen is not None:
        host, _, port = listen.rpartition(":")
        yield _listens("127.0.0.1" if host in {"", "0.0.0.0"} else host, int(port))
        if cluster.file.interconnect.certificate is None and not host.startswith("127."):
            problem = f"{listen} takes whoever reaches it, without TLS"
            yield Finding(
                "interconnect", "warning", problem, "Give certificate, key and authority: see docs/security.md."
            )
    for url in cluster.file.interconnect.urls:
        parts = urlsplit(url)
        try:
            socket.create_connection((parts.hostname or "", parts.port or _PORTS[parts.scheme]), _SECONDS).close()
        except OSError as error:
            yield Finding(
                "interconnect", "wrong", f"{hide_password(url)}: {error.strerror or error}", "Is it up, and reachable?"
            )
        else:
            yield Finding("interconnect", "ok", f"{hide_password(url)} answers")


def _listens(host: str, port: int) -> Finding:
    try:
        socket.create_connection((host, port), _SECONDS).close()
    except OSError:
        return Finding("interconnect", "ok", f"nobody listens on {host}:{port} yet: 'headrace bridge run' will")
    return Finding("interconnect", "ok", f"{host}:{port} is listened on: see 'headrace status' whether by this bridge")


_IN_KAFKA: tuple[Check[Cluster], ...] = (ledgers, topics, group, positions, deliveries, requests)
_HERE: tuple[Check[Cluster], ...] = (registry, open_files, certificates, interconnect)
