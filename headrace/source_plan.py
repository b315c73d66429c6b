"""What a new source needs at every place, in order: database, certificate, router, edge, bridge, topic, lake.

Pure: it looks at the files that are given, and neither connects to anything nor writes. Called by headrace/source_command.py.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from headrace.configuration.bridge import BridgeFile
from headrace.configuration.edge import EdgeFile
from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError

Engine = Literal["postgresql", "mariadb", "mysql"]
State = Literal["done", "to do", "look"]


class Step(NamedTuple):
    """What is done at one place."""

    place: str
    #: `look`: it cannot be seen from here whether it is done.
    state: State
    #: A sentence.
    text: str
    #: Commands, and SQL for a database, to be run in this order.
    run: list[str]
    #: The file that is changed, and what it needs; empty for none.
    file: str = ""
    content: str = ""


class NewSource(NamedTuple):
    """The source, and the files that there are."""

    source: str
    engine: Engine
    bridge: BridgeFile
    #: The stream that it joins.
    stream: str
    #: Where its edge's file is or will be.
    edge_path: Path
    edge: EdgeFile | None = None
    lake: LakeFile | None = None
    #: Where edges connect to, `amqps://HOST:PORT`; empty when it is not known.
    interconnect: str = ""


def plan(new: NewSource) -> list[Step]:
    """Return the steps; raise ConfigurationError when the files do not fit the source."""
    if new.edge is not None and new.edge.source.name != new.source:
        raise ConfigurationError(
            f"{new.edge_path} is the file of {new.edge.source.name}, not of {new.source}",
            hint="Name another file in --edge: each source has an edge, a file and a state folder of its own.",
        )
    return [*_database(new), *_identity(new), *_edge(new), *_bridge(new), *_lake(new), _check(new)]


def partitions_of(new: NewSource) -> list[int]:
    """Return the partitions that the source has by the bridge's file, else the first that no source of the stream owns."""
    owned = new.bridge.stream(new.stream).sources
    if new.source in owned:
        return list(owned[new.source])
    return [1 + max(partition for partitions in owned.values() for partition in partitions)]


def _database(new: NewSource) -> Iterator[Step]:
    if new.engine == "postgresql":
        run = [
            "alter system set wal_level = 'logical';  -- then restart the server",
            "alter system set max_slot_wal_keep_size = '50GB'; select pg_reload_conf();  -- what the disk can spare",
            "create role headrace login replication password '…';",
            "grant select on all tables in schema public to headrace;  -- for snapshots and 'headrace verify'",
            "-- The publication: 'headrace edge doctor' prints its statement, of tables that it does not harm.",
        ]
    else:
        mariadb = "replication slave, replication master admin, binlog monitor"
        grants = mariadb if new.engine == "mariadb" else "replication slave, replication client"
        run = [
            "set global binlog_format = 'ROW'; set global binlog_row_image = 'FULL'; set global binlog_row_metadata = 'FULL';",
            "create user headrace identified by '…';",
            f"grant {grants} on *.* to headrace;",
            "grant select on *.* to headrace;",
        ]
        if new.engine == "mysql":
            run.append("grant reload on *.* to headrace;  -- for 'headrace verify'")
    yield Step(
        "database",
        "look",
        "The server writes a log with rows, and has a user for the edge. On a managed server see docs/cloud.md.",
        run,
    )


def _identity(new: NewSource) -> Iterator[Step]:
    """Yield how the interconnect knows the edge."""
    interconnect = new.bridge.interconnect
    name = new.source.replace("/", "-")
    certs = [f"headrace certs certs --source {new.source}"]
    if interconnect.listen is not None and interconnect.certificate is None:
        yield Step("certificate", "done", "The bridge listens without certificates and takes whoever reaches it.", [])
        return
    yield Step(
        "certificate",
        "look",
        f"The edge has a certificate with the common name {new.source}: {name}.pem and {name}.key, on its machine alone.",
        certs,
    )
    if interconnect.listen is None:
        region = new.source.partition("/")[0]
        group = {
            "users": new.source,
            "remoteHosts": "*",
            "targets": f"cdc/{new.source}, answers/{new.source}",
            "sources": f"requests/{new.source}",
        }
        yield Step(
            "router",
            "look",
            "The policy of the router that the edge connects to has a group for it; interior routers have one for the region "
            f"{region}. With a broker: its security-settings (infra/artemis).",
            [],
            "infra/router/policy",
            json.dumps({name: group}, indent=2),
        )


def _edge(new: NewSource) -> Iterator[Step]:
    path = new.edge_path
    database = {"postgresql": "postgresql://headrace@HOST/DATABASE"}.get(new.engine, f"{new.engine}://headrace@HOST")
    where = new.interconnect or "amqps://HOST:PORT"
    command = f"headrace edge new --source {new.source} --database {database} --interconnect {where} --output {path}"
    if new.edge is None:
        yield Step("edge", "to do", f"There is no file {path} yet.", [command])
    else:
        yield Step("edge", "done", f"{path} is the file of {new.source}.", [f"headrace config check {path}"])


def _bridge(new: NewSource) -> Iterator[Step]:
    file, name = new.bridge, new.stream
    stream, partitions = file.stream(name), partitions_of(new)
    init = f"headrace bridge init --config {file.path}"
    topics = ", ".join(f"{topic}{partitions}" for topic in file.topics(name))
    if new.source in stream.sources:
        yield Step("bridge", "done", f"The source owns {topics} by {file.path}.", [])
    else:
        yield Step(
            "bridge",
            "to do",
            f"The source gets {topics}: the first partitions that no source of the stream owns. The same in the files of all "
            f"bridges of the group {file.group}.",
            [],
            file.path,
            f"[streams.{name}.sources]\n{json.dumps(new.source)} = {partitions}\n",
        )
    yield Step("topic", "look", "Kafka has the partitions.", [init])
    yield Step(
        "bridge",
        "look",
        "The bridges take the file over while they run.",
        [
            "kill -HUP PID  # of each 'headrace bridge run'; or start it again",
            f"headrace bridge doctor --config {file.path}",
        ],
    )
    path = new.edge_path
    yield Step(
        "edge",
        "look",
        "The edge is initialised, and runs under a supervisor.",
        [
            f"headrace edge doctor --config {path}",
            f"headrace edge init --snapshot --config {path}  # without --snapshot the rows that are there stay behind",
            f"headrace edge run --config {path}",
        ],
    )


def _lake(new: NewSource) -> Iterator[Step]:
    lake = new.lake
    if lake is None:
        return
    if new.stream not in lake.streams:
        names = json.dumps(sorted({*new.bridge.stream(new.stream).sources, new.source}))
        content = f"[streams.{new.stream}]\nsources = {names}\n"
        yield Step("lake", "to do", f"{lake.path} has no stream {new.stream}.", [], lake.path, content)
    elif new.source in lake.stream(new.stream).sources:
        yield Step("lake", "done", f"{lake.path} has the source.", [])
    else:
        names = json.dumps([*lake.stream(new.stream).sources, new.source])
        text = "The next load then takes its records, from the first."
        yield Step("lake", "to do", text, [], lake.path, f"[streams.{new.stream}]\nsources = {names}\n")


def _check(new: NewSource) -> Step:
    run = [f"headrace status --config {new.bridge.path}"]
    if new.lake is not None:
        run += [
            f"headrace lake load {new.stream} --config {new.lake.path}",
            f"headrace verify {new.stream} --config {new.lake.path}",
        ]
    return Step("check", "look", "Its changes arrive.", run)
