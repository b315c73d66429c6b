"""The bank on this machine: two databases of infra/local, and the files and commands of all parts around them.

Used by the demo and by the tests, each of which starts the parts as it needs them.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg2
import pymysql

from infra.local import files
from infra.local.server import free_port
from infra.local.stack import Stack

HERE = Path(__file__).resolve().parent
DATABASE = TOPIC = "cards"
ALERTS = "alerts"
POSTGRES, MARIADB = "jakarta", "singapore"
REGIONS = (POSTGRES, MARIADB)


class Bank:
    """Files and commands for one stack: `jakarta` on PostgreSQL, `singapore` on MariaDB, Kafka."""

    def __init__(self, folder: Path, stack: Stack) -> None:
        self.folder, self.stack = folder, stack
        self.postgres, self.mariadb = stack.postgres[POSTGRES], stack.mariadb[MARIADB]
        listen = f"127.0.0.1:{free_port()}"
        self.url = f"amqp://{listen}"
        self.edge_files = {
            POSTGRES: files.edge(
                folder / "edge-jakarta.toml",
                source=f"{POSTGRES}/{DATABASE}",
                postgres=self.postgres,
                database=DATABASE,
                interconnect=self.url,
            ),
            MARIADB: files.mariadb_edge(
                folder / "edge-singapore.toml",
                source=f"{MARIADB}/{DATABASE}",
                mariadb=self.mariadb,
                database=DATABASE,
                interconnect=self.url,
            ),
        }
        self.bridge_file = files.bridge(
            folder / "bridge.toml",
            bootstrap=stack.kafka.bootstrap,
            listen=listen,
            sources=[f"{region}/{DATABASE}" for region in REGIONS],
            stream=TOPIC,
        )
        with self.bridge_file.open("a") as file:
            file.write(f'\n[deliveries.{ALERTS}]\naddress = "alerts/{{region}}"\npartitions = 2\n')

    def prepare(self, headrace: Callable[..., Any]) -> None:
        """Make tables, topics and the state of edges; `headrace` runs one of its commands."""
        self.postgres.create_database(DATABASE)
        self.postgres.psql((HERE / "postgresql.sql").read_text(), DATABASE)
        self.mariadb.sql(f"CREATE DATABASE {DATABASE}")
        self.mariadb.sql((HERE / "mariadb.sql").read_text(), DATABASE)
        headrace("bridge", "init", "--config", str(self.bridge_file))
        for file in self.edge_files.values():
            headrace("edge", "init", "--config", str(file))

    @property
    def connect(self) -> dict[str, Callable[[], Any]]:
        """What makes a connection to each region's database, in UTC."""
        return {
            POSTGRES: lambda: psycopg2.connect(self.postgres.dsn(DATABASE), options="-c timezone=UTC"),
            MARIADB: lambda: pymysql.connect(
                host="127.0.0.1", port=self.mariadb.port, user="root", database=DATABASE,
                init_command="SET SESSION time_zone = '+00:00'", ssl_disabled=True,
            ),
        }  # fmt: skip

    def commands(self, *, finder: str = "job") -> dict[str, list[str]]:
        """Return the command line of each part by its name; `finder` is what finds frauds, `job` or `plain`."""
        headrace = [sys.executable, "-m", "headrace"]
        kafka = ["--bootstrap", self.stack.kafka.bootstrap, "--topic", TOPIC, "--alerts", ALERTS]
        programs = {
            "bridge": [*headrace, "bridge", "run", "--config", str(self.bridge_file)],
            finder: [sys.executable, str(HERE / f"{finder}.py"), *kafka],
        }
        if finder == "job":
            programs[finder] += ["--checkpoint", str(self.folder / "checkpoint")]
        for region, file in self.edge_files.items():
            programs[f"edge-{region}"] = [*headrace, "edge", "run", "--config", str(file)]
            address = ["--connect", self.url, "--address", f"alerts/{region}"]
            receive = [sys.executable, str(HERE / "branch.py"), *address, "--database", str(self.database(region))]
            programs[f"branch-{region}"] = receive
        return programs

    def database(self, region: str) -> Path:
        """Return the database of a region's receiver."""
        return self.folder / f"branch-{region}.sqlite"
