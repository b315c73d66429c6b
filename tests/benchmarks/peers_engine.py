"""An edge with Debezium's engine over the log that Debezium Server reads: the same connector and memory, behind our chain."""

from pathlib import Path
from typing import Any

import psutil

from infra.local.postgres import Postgres
from tests.benchmarks import debezium, drain
from tests.benchmarks.peers_run import Run
from tests.benchmarks.usage import Usage, usage
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised

_FILE = """
[source]
name = "{source}"

[source.debezium]
connector = "postgres"
java = "{java}"
memory_megabytes = 2048

[source.debezium.properties]
"database.hostname" = "127.0.0.1"
"database.port" = {port}
"database.user" = "postgres"
"database.dbname" = "{database}"
"table.include.list" = "{table}"
"slot.name" = "{name}"
"publication.name" = "{name}"
"publication.autocreate.mode" = "filtered"
"max.batch.size" = 8192
"max.queue.size" = 32768

[source.debezium.secrets]
"database.password" = "file:{name}.password"

[snapshot]
mode = "no_data"

[interconnect]
url = "{interconnect}"

[state]
folder = "state-{name}"
"""


def edge(folder: Path, postgres: Postgres, backlog: drain.Backlog, run: int, port: int, *, table: str) -> Supervised:
    """Return an edge with the engine that reads one table, ready to be started."""
    name = f"engine{run}"
    path = folder / f"edge-{name}.toml"
    text = _FILE.format(
        source=backlog.sources[run],
        java=debezium.java(),
        port=postgres.port,
        database=backlog.name,
        table=table,
        name=name,
        interconnect=f"amqp://127.0.0.1:{port}",
    )
    path.write_text(text)
    path.with_name(f"{name}.password").write_text("unused")
    headrace("edge", "init", "--config", str(path))
    return Supervised(name, command("edge", "run", "--config", str(path)), log=folder / f"{name}.log")


def drained(connection: Any, bridge: Supervised, edge: Supervised, end: str) -> tuple[Run, float]:
    """Return the drain of a backlog by all three processes, and the most memory of the edge's own in MB."""
    bridge.start()
    seconds = drain.drained(connection, edge, edge.name, end)
    engines = [usage(each.pid) for each in psutil.Process(edge.pid).children()]
    own = usage(edge.pid).peak_megabytes
    run = Run.of(seconds, edge, bridge)
    cost = Usage(
        run.cost.cpu_seconds + sum(each.cpu_seconds for each in engines),
        run.cost.peak_megabytes + sum(each.peak_megabytes for each in engines),
    )
    return run._replace(cost=cost), own
