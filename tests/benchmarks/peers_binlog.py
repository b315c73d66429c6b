"""Headrace beside Debezium Server over the same binlog of MariaDB. Called by peers.py.

The peer begins where the binlog stands when it is first started, so each of its servers is started once before the backlog, sees
a row, and is stopped. What others' first rows add to its topic is counted in.
"""

from itertools import count
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from rich.console import Console

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.mariadb import Mariadb
from infra.local.server import free_port
from tests.benchmarks import binlog, debezium
from tests.benchmarks.peers_run import Run, drained_by_peer
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.rules.waiting import eventually

_DATABASE, _TABLE = "bench", "many"
_FIRST = "insert into many values (-{number}, 1, 'first', 1, 1, 'placed', null, now(6))"


class _Peer(NamedTuple):
    server: Supervised
    topic: str
    #: Rows that were there before it.
    missed: int


def measure(console: Console, folder: Path, kafka: Kafka, changes: int, runs: int) -> tuple[list[Run], list[Run]]:
    """Return our drains and the peer's, by turns."""
    mariadb = Mariadb(folder / "mariadb", settings=binlog.SETTINGS)
    try:
        mariadb.start()
        mariadb.sql(f"create database {_DATABASE}")
        binlog.create(mariadb, _TABLE)
        rows = count(1)
        with console.status(f"starting {debezium.version()} {runs} times, so that it knows where to begin"):
            peers = [_peer(folder, kafka, mariadb, run, rows) for run in range(runs)]
        firsts = next(rows) - 1
        port = free_port()
        sources = [f"bench/{_TABLE}{run}" for run in range(runs)]
        bridge_file = files.bridge(
            folder / "bridge-peers-binlog.toml", bootstrap=kafka.bootstrap, listen=f"127.0.0.1:{port}", sources=sources,
            stream="peers-binlog",
        )  # fmt: skip
        headrace("bridge", "init", "--config", str(bridge_file))
        edges = [binlog.edge(folder, mariadb, source, 7000 + run, port) for run, source in enumerate(sources)]
        with console.status(f"writing a backlog of {changes:,} changes"):
            end = binlog.fill(mariadb, _TABLE, changes)
        run_bridge = command("bridge", "run", "--config", str(bridge_file))
        bridge = Supervised("bridge", run_bridge, log=folder / "bridge-peers-binlog.log")
        ours, theirs = [], []
        for peer, (edge, checkpoint) in zip(peers, edges, strict=True):
            # What it read last before it was stopped, it may read again.
            theirs.append(drained_by_peer(peer.server, kafka, peer.topic, changes + firsts - peer.missed, again=firsts))
            console.print(f"{debezium.version()}, binlog: {changes / theirs[-1].seconds:,.0f} changes/s")
            bridge.start()
            ours.append(Run.of(binlog.drain(edge, checkpoint, end), edge, bridge))
            console.print(f"Headrace, binlog: {changes / ours[-1].seconds:,.0f} changes/s")
    finally:
        mariadb.delete()
    return ours, theirs


def _peer(folder: Path, kafka: Kafka, mariadb: Mariadb, run: int, rows: "count[int]") -> _Peer:
    """Return a server that has seen its first row and is stopped."""
    name = f"debeziumbinlog{run}"
    topic = f"{name}.{_DATABASE}.{_TABLE}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    source = debezium.of_mariadb(folder, mariadb, database=_DATABASE, table=_TABLE, server_id=8000 + run)
    server = debezium.server(folder, kafka, name, source)
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": f"{name}-first"})
    written = 0

    def seen() -> bool:
        nonlocal written
        written = next(rows)
        mariadb.sql(_FIRST.format(number=written), _DATABASE)
        assert server.restarts == 0, server.tail()
        return bool(_end(consumer, topic))

    server.start()
    try:
        eventually(seen, 120, every=1, saying=f"{debezium.version()} reads the binlog")
        began = _end(consumer, topic)

        def rests() -> bool:
            nonlocal began
            before, began = began, _end(consumer, topic)
            return before == began

        eventually(rests, 30, every=2, saying=f"{debezium.version()} has read all there is")
        return _Peer(server, topic, written - began)
    finally:
        server.stop(60)
        consumer.close()


def _end(consumer: Consumer, topic: str) -> int:
    return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1])
