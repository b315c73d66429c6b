"""The whole pipeline as real processes: two databases, their edges, a bridge, Kafka, and writers.

It guarantees that everything it started is gone after `stop`, and that the truth slots are there before the first row. Kafka
and the PostgreSQL servers belong to whoever makes the pipeline. Used by the end-to-end tests and the benchmarks.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg2

from infra.local import files
from infra.local.kafka import Kafka
from infra.local.postgres import Postgres
from infra.local.server import free_port
from tests.end_to_end.follower import Follower
from tests.end_to_end.supervised import Supervised
from tests.end_to_end.workload import ROWS, Workload
from tests.history import truth
from tests.history.checker import Difference, check
from tests.history.records import Record, record
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually
from tests.servers.fix_proxy import Proxy

DATABASE = STREAM = "bank"


#: This release's command.
HEADRACE = Path(sys.executable).with_name("headrace")


def headrace(*arguments: str, program: Path = HEADRACE, seconds: float = 600) -> str:
    """Run a headrace command and return what it printed; fail with all of its output when it does."""
    done = subprocess.run(
        [program, *arguments], capture_output=True, text=True, timeout=seconds, check=False, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 0, (
        f"headrace {' '.join(arguments)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    )
    return done.stdout


def command(*arguments: str) -> list[str]:
    """Return the command line of a headrace command."""
    return [str(HEADRACE), *arguments]


class Region:
    """One database with its edge, its writers, and the wire between edge and bridge."""

    def __init__(self, folder: Path, source: str, partition: int, postgres: Postgres, bridge_port: int) -> None:
        self.source, self.partition, self.postgres = source, partition, postgres
        name = source.partition("/")[0]
        self.wire = Proxy("127.0.0.1", bridge_port)
        self.edge_file = files.edge(
            folder / f"edge-{name}.toml",
            source=source,
            postgres=postgres,
            database=DATABASE,
            interconnect=f"amqp://{self.wire.host}:{self.wire.port}",
        )
        if partition == 0:
            # What waits a moment goes to the spool, so that every fault meets one.
            self.edge_file.write_text(self.edge_file.read_text() + "\n[spool]\nmegabytes = 64\nafter_seconds = 0.2\n")
        run = command("edge", "run", "--config", str(self.edge_file))
        self.edge = Supervised(f"edge {name}", run, log=folder / f"edge-{name}.log")
        self.workload = Workload(postgres.bin("pgbench"), postgres.dsn(DATABASE), log=folder / f"pgbench-{name}.log")

    def prepare(self, existing: str = "", program: Path = HEADRACE) -> None:
        """Make database, tables, what is there already when capture begins, publication, slots, and then the first rows."""
        self.postgres.create_database(DATABASE)
        self.workload.make_tables()
        if existing:
            with self.connection() as connection, connection.cursor() as cursor:
                cursor.execute(existing)
        headrace("edge", "init", "--config", str(self.edge_file), program=program)
        with self.connection() as connection, connection.cursor() as cursor:
            truth.begin(connection)
            cursor.execute(ROWS)

    def connection(self) -> Any:
        """Return a new autocommit connection, which closes at the end of its `with`."""
        return _Closing(self.postgres.dsn(DATABASE))

    def wait_for_log(self, more: int) -> None:
        """Wait until the database has written so many more bytes of log."""
        with self.connection() as connection, connection.cursor() as cursor:

            def written() -> int:
                cursor.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
                return int(cursor.fetchone()[0])

            before = written()
            eventually(lambda: written() >= before + more, 180, saying=f"{self.source} writes {more} bytes of log")

    def quiet(self) -> bool:
        """Whether no client that could still commit is connected."""
        with self.connection() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgbench'")
            return cursor.fetchone() == (0,)


class _Closing:
    def __init__(self, dsn: str) -> None:
        self._connection = psycopg2.connect(dsn)
        self._connection.autocommit = True

    def __enter__(self) -> Any:
        return self._connection

    def __exit__(self, *_: object) -> None:
        self._connection.close()


class Pipeline:
    """Two regions, one bridge, one topic."""

    def __init__(self, folder: Path, kafka: Kafka, postgres: dict[str, Postgres]) -> None:
        self.folder, self.kafka = folder, kafka
        port = free_port()
        self.regions = [
            Region(folder, source, partition, server, port)
            for partition, (source, server) in enumerate(postgres.items())
        ]
        sources = [region.source for region in self.regions]
        self.bridge_file = files.bridge(
            folder / "bridge.toml",
            bootstrap=kafka.bootstrap,
            listen=f"127.0.0.1:{port}",
            sources=sources,
            stream=STREAM,
            requests=True,
        )
        self.lake_file = files.lake(folder / "lake.toml", bootstrap=kafka.bootstrap, sources=sources, stream=STREAM)
        self.bridge = Supervised(
            "bridge", command("bridge", "run", "--config", str(self.bridge_file)), log=folder / "bridge.log"
        )
        self.follower: Follower | None = None

    @property
    def parts(self) -> list[Supervised]:
        """The processes that are ours."""
        return [self.bridge, *(region.edge for region in self.regions)]

    def start(self, existing: str = "", program: Path = HEADRACE) -> None:
        """Prepare every region, with rows that are there before if SQL is given, and start bridge and edges."""
        headrace("bridge", "init", "--config", str(self.bridge_file), program=program)
        for region in self.regions:
            region.prepare(existing, program)
        self.follower = Follower(self.kafka.bootstrap, STREAM, len(self.regions))
        for part in self.parts:
            part.program = str(program)
            part.start()

    def stop(self) -> None:
        """End writers, edges and bridge."""
        for region in self.regions:
            region.workload.stop()
        if self.follower is not None:
            self.follower.stop()
        try:
            for part in reversed(self.parts):
                assert part.stop() in {0, part.gave_up}, f"{part.name} did not end well:\n{part.tail()}"
        finally:
            for part in self.parts:
                part.kill()
            for region in self.regions:
                region.wire.close()

    def wait_for_more(self, changes: int, seconds: float = 300) -> None:
        """Wait until so many more changes of every region are readable in Kafka."""
        assert self.follower is not None
        self._wait_for({part: self.follower.changes[part] + changes for part in self._partitions()}, seconds)

    def stop_writers(self) -> None:
        """End the writers; returns when nothing more can be committed."""
        for region in self.regions:
            region.workload.stop()
        for region in self.regions:
            eventually(region.quiet, saying=f"no writer is connected to {region.source}")

    def wait_until_drained(self, seconds: float = 300) -> None:
        """Wait until Kafka has as many changes of each source as it committed."""
        wanted = {}
        for region in self.regions:
            with region.connection() as connection:
                wanted[region.partition] = sum(len(it.changes) for it in truth.committed(connection))
        self._wait_for(wanted, seconds)

    def _partitions(self) -> list[int]:
        return [region.partition for region in self.regions]

    def _wait_for(self, wanted: dict[int, int], seconds: float) -> None:
        assert self.follower is not None
        seen = self.follower.changes

        def there() -> bool:
            for part in self.parts:
                part.check()
            return all(seen[partition] >= count for partition, count in wanted.items())

        try:
            eventually(there, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}: {dict(seen)} changes in Kafka, not {wanted}\n{self.tails()}") from None

    def differences(self) -> dict[str, list[Difference]]:
        """Return what the history checker objects to in the topic, by source; nothing at all is the proof."""
        topic, results = self.records(), {}
        for region in self.regions:
            with region.connection() as connection:
                committed, keys = truth.committed(connection), truth.keys(connection)
            assert committed, f"{region.source} committed nothing"
            results[region.source] = check(region.source, committed, topic, partition=region.partition, keys=keys)
        return {source: differences for source, differences in results.items() if differences}

    def records(self) -> list[Record]:
        """Return all committed records of the topic, read anew."""
        records = read_committed(self.kafka.bootstrap, STREAM)
        return [record(it.partition, it.offset, it.key, it.value) for it in records]

    def load(self, program: Path = HEADRACE) -> str:
        """Load the lake, and return what the command printed."""
        return headrace("lake", "load", STREAM, "--config", str(self.lake_file), program=program)

    def tails(self) -> str:
        """Return what each part said last."""
        return "\n".join(f"--- {part.name}, {part.restarts} restarts\n{part.tail(15)}" for part in self.parts)
