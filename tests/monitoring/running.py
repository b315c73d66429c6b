"""A source, its edge and a bridge as processes, whose endpoints a real Prometheus scrapes."""

import os
import signal
from pathlib import Path
from typing import Self

import psycopg2
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from infra.local.server import free_port
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.monitoring.rules import shortened
from tests.rules.waiting import eventually
from tests.servers.prometheus import Prometheus

SOURCE, DATABASE, STREAM, DELIVERY = "jakarta/bank", "bank", "bank", "alerts"
#: WAL that PostgreSQL keeps for the edge, and what the edge's spool may hold, in megabytes.
WAL, SPOOL = 96, 1


class Parts:
    """The parts, in a folder; `with` starts and ends them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.postgres = Postgres(folder / "jakarta", settings={"max_slot_wal_keep_size": f"{WAL}MB"})
        self.kafka = Kafka(folder / "kafka")
        self.port = free_port()
        ports = {name: free_port() for name in ("edge", "bridge", "second bridge", "console")}
        self._metrics = {name: f'\n[metrics]\nlisten = "127.0.0.1:{port}"\n' for name, port in ports.items()}
        self._console_port = ports["console"]
        targets = [f"127.0.0.1:{port}" for port in ports.values()]
        self.prometheus = Prometheus(folder / "prometheus", free_port(), targets, shortened(), interval="1s")
        self._rows = 0

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in ("edge", "bridge", "second_bridge", "console"):
            if (part := getattr(self, name, None)) is not None:
                part.stop_at_once()
        self.prometheus.stop()
        self.kafka.delete()
        self.postgres.delete()

    def _start(self) -> None:
        self.kafka.start()
        self.postgres.start()
        self.prometheus.start()
        self.postgres.create_database(DATABASE)
        self.execute("CREATE TABLE rows (id int PRIMARY KEY, filler text)")
        self.execute("ALTER TABLE rows ALTER filler SET STORAGE EXTERNAL")
        bridge = files.bridge(
            self.folder / "bridge.toml",
            bootstrap=self.kafka.bootstrap,
            listen=f"127.0.0.1:{self.port}",
            sources=[SOURCE],
            stream=STREAM,
        )
        delivery = f'\n[deliveries.{DELIVERY}]\naddress = "alerts/{{region}}"\n'
        bridge.write_text(bridge.read_text() + delivery + self._metrics["bridge"])
        self.edge_file = files.edge(
            self.folder / "edge.toml",
            source=SOURCE,
            postgres=self.postgres,
            database=DATABASE,
            interconnect=f"amqp://127.0.0.1:{self.port}",
        )
        more = f"\n[spool]\nmegabytes = {SPOOL}\nafter_seconds = 0.2\n[batches]\nwindow_megabytes = 1\n"
        self.edge_file.write_text(self.edge_file.read_text() + more + self._metrics["edge"])
        wrong = self.folder / "second-bridge.toml"
        wrong.write_text(bridge.read_text().replace(self._metrics["bridge"], self._metrics["second bridge"]))
        self.lake_file = files.lake(
            self.folder / "lake.toml", bootstrap=self.kafka.bootstrap, sources=[SOURCE], stream=STREAM
        )
        show = command("console", "--config", str(bridge), "--lake", str(self.lake_file))
        show += ["--listen", f"127.0.0.1:{self._console_port}"]
        self.console = Supervised("console", show, log=self.folder / "console.log")
        headrace("bridge", "init", "--config", str(bridge))
        headrace("edge", "init", "--config", str(self.edge_file))
        self.bridge = self._part("bridge", bridge)
        self.edge = self._part("edge", self.edge_file)
        self.second_bridge = self._part("bridge", wrong)
        self.bridge.start()
        self.edge.start()

    def _part(self, kind: str, file: Path) -> Supervised:
        run = command(kind, "run", "--hold", "--config", str(file))
        return Supervised(f"{kind} {file.stem}", run, log=self.folder / f"{file.stem}.log")

    @property
    def checkpoint(self) -> Path:
        """The edge's checkpoint."""
        return self.folder / "state-edge" / "checkpoint.json"

    def execute(self, statement: str, *values: object) -> None:
        """Run a statement in the database."""
        with psycopg2.connect(self.postgres.dsn(DATABASE)) as connection, connection.cursor() as cursor:
            cursor.execute(statement, values)

    def write(self, kilobytes: int = 1) -> None:
        """Insert a row of this size."""
        self._rows += 1
        self.execute("INSERT INTO rows VALUES (%s, %s)", self._rows, os.urandom(512 * kilobytes).hex())

    def load(self) -> None:
        """Load the stream into the lake."""
        headrace("lake", "load", STREAM, "--config", str(self.lake_file))

    def keep_records(self, seconds: float) -> None:
        """Have Kafka keep the stream's records for so long."""
        entry = ConfigEntry("retention.ms", str(int(seconds * 1000)), incremental_operation=AlterConfigOpType.SET)
        topic = ConfigResource(ResourceType.TOPIC, STREAM, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": self.kafka.bootstrap})
        admin.incremental_alter_configs([topic])[topic].result(30)

    def stop_kafka(self) -> None:
        """Have Kafka stand still."""
        os.kill(self.kafka.pid or 0, signal.SIGSTOP)

    def continue_kafka(self) -> None:
        """Have Kafka go on."""
        os.kill(self.kafka.pid or 0, signal.SIGCONT)

    def fires(self, *alerts: str, seconds: float = 60, kilobytes: int = 1) -> None:
        """Wait until all these alerts fire, while rows of so many kilobytes are written; 0: none are."""

        def all_fire() -> bool:
            if kilobytes:
                self.write(kilobytes)
            missing = set(alerts) - self.prometheus.firing()
            assert not missing, missing
            return True

        eventually(all_fire, seconds, every=0.3, saying=f"{alerts} fire")

    def resolved(self, seconds: float = 90) -> None:
        """Wait until no alert fires, while small rows are written."""

        def none_fires() -> bool:
            self.write()
            # Most causes are shown without a console, which is an alert itself.
            firing = self.prometheus.firing() - ({"HeadraceConsoleAbsent"} if not self.console.pid else set())
            assert not firing, firing
            return True

        eventually(none_fires, seconds, every=0.3, saying="nothing fires")
