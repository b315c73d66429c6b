"""The configuration files of a whole pipeline on this machine: what an operator would write, with free ports filled in.

Used by the demo, the end-to-end tests and the benchmarks.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.local.mariadb import Mariadb
from infra.local.postgres import Postgres


def edge(
    path: Path,
    *,
    source: str,
    postgres: Postgres,
    database: str,
    interconnect: str,
    names: str = "headrace",
    tables: Sequence[str] = (),
    heartbeat_seconds: float = 1.0,
) -> Path:
    """Write an edge's file; `names` is the name of both its slot and its publication."""
    listed = ", ".join(f'"{table}"' for table in tables)
    path.write_text(f"""\
heartbeat_seconds = {heartbeat_seconds}

[source]
name = "{source}"

[source.postgresql]
{_postgresql(postgres, database)}
slot = "{names}"
publication = "{names}"
tables = [{listed}]

[interconnect]
url = "{interconnect}"

[state]
folder = "state-{path.stem}"
""")
    return path


def mariadb_edge(
    path: Path,
    *,
    source: str,
    mariadb: Mariadb,
    database: str,
    interconnect: str,
    server_id: int = 4711,
    heartbeat_seconds: float = 1.0,
) -> Path:
    """Write the file of an edge of one database of a MariaDB server; `server_id` is the edge's own number."""
    path.write_text(f"""\
heartbeat_seconds = {heartbeat_seconds}

[source]
name = "{source}"

[source.mariadb]
{_mariadb(mariadb, database)}
server_id = {server_id}

[interconnect]
url = "{interconnect}"

[state]
folder = "state-{path.stem}"
""")
    return path


def bridge(
    path: Path,
    *,
    bootstrap: str,
    listen: str,
    sources: Sequence[str],
    stream: str,
    requests: bool = False,
    metrics: str | None = None,
) -> Path:
    """Write the bridge's file: the n-th source owns partition n of the one stream; with `requests` it carries those to edges.

    `metrics` is the address of its endpoint.
    """
    owned = "\n".join(f'"{source}" = [{partition}]' for partition, source in enumerate(sources))
    endpoint = f'[metrics]\nlisten = "{metrics}"' if metrics is not None else ""
    path.write_text(f"""\
[kafka]
bootstrap = "{bootstrap}"

[interconnect]
listen = "{listen}"

[streams.{stream}.sources]
{owned}
{"[requests]" if requests else ""}
{endpoint}
""")
    return path


def lake(
    path: Path,
    *,
    bootstrap: str,
    sources: Sequence[str],
    stream: str,
    direct: Mapping[str, tuple[Postgres | Mariadb, str]] | None = None,
    serve: tuple[str, str] | None = None,
) -> Path:
    """Write the lake's file: one stream with all sources; `direct` has server and database of those that are connected to.

    `serve` has the addresses at which `headrace lake serve` answers Spark Connect and JDBC.
    """
    names = ", ".join(f'"{source}"' for source in sources)
    reached = "\n".join(
        f'[sources."{source}".{"postgresql" if isinstance(server, Postgres) else "mariadb"}]\n'
        f"{_postgresql(server, database) if isinstance(server, Postgres) else _mariadb(server, database)}\n"
        for source, (server, database) in (direct or {}).items()
    )
    served = ""
    if serve is not None:
        # However busy this machine is. It does the loads too: one JVM for all.
        served = f'[serve]\nconnect = "{serve[0]}"\nthrift = "{serve[1]}"\nloads = "run/loads"\nseconds = 3600\n'
        served += 'audit = "logs/sql.jsonl"\n'
    path.write_text(f"""\
[lake]
root = "lake"

[kafka]
bootstrap = "{bootstrap}"

[spark.settings]
# Loads are small here: a JVM spends most of its time on compiling for speed what is over soon.
"spark.driver.extraJavaOptions" = "-XX:TieredStopAtLevel=1"

[streams.{stream}]
sources = [{names}]

{reached}{served}""")
    return path


def _postgresql(postgres: Postgres, database: str) -> str:
    return f'host = "127.0.0.1"\nport = {postgres.port}\ndatabase = "{database}"\nuser = "postgres"'


def _mariadb(mariadb: Mariadb, database: str) -> str:
    return f'host = "127.0.0.1"\nport = {mariadb.port}\nuser = "root"\ndatabases = ["{database}"]'
