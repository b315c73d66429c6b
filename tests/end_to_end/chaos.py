"""One source of any engine, its edge, a bridge and Kafka under load, while all of it is struck and its table is altered.

What Kafka has in the end makes the table of the database, each change is there once and in order, and a server that was restored
from a backup stops its edge until an operator has done what its error asks for.
"""

import contextlib
import json
import random
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from infra.local import files
from infra.local.server import free_port
from tests.edge.under_test import EdgeUnderTest
from tests.end_to_end.follower import Follower
from tests.end_to_end.pipeline import command, headrace
from tests.end_to_end.supervised import Supervised
from tests.kafka.reading import read_committed
from tests.rules.waiting import eventually
from tests.servers.fix_proxy import Proxy
from tests.servers.volume import Volume

STREAM = "bank"
#: Changes that arrive between two strikes.
BETWEEN = 60
_SPOOL = "\n[spool]\nmegabytes = 16\nafter_seconds = 0.2\n"
TABLES = ["create table ledger (id bigint primary key)", "create table t (id int primary key, note varchar(300))"]
#: Each between two strikes, in order, until they are used up.
DDL = [
    "alter table t add column extra int",
    "truncate table t",
    "alter table t drop column extra",
    "create table u (id int primary key, note text)",
    "alter table t add column other varchar(20)",
]


class Writer(threading.Thread):
    """Writes small transactions until it is stopped, whatever happens to the server; each leaves its number in `ledger`."""

    #: Of all of them: how many transactions were begun.
    begun = 0

    def __init__(self, database: Any, chance: random.Random) -> None:
        super().__init__(name="writer", daemon=True)
        self._database, self._chance, self._stopping = database, chance, threading.Event()

    def run(self) -> None:
        """Write, and connect again where that fails."""
        while not self._stopping.wait(0.1):
            with contextlib.suppress(Exception), contextlib.closing(self._database.connect()) as connection:
                while not self._stopping.wait(0.01):
                    self._write(connection)

    def _write(self, connection: Any) -> None:
        row, text = self._chance.randrange(200), "x" * self._chance.randrange(1, 200)
        statement = [
            f"insert into t (id, note) select {row} + 1000 * max(id), '{text}' from ledger having max(id) is not null",
            f"update t set note = '{text}' where id % 200 between {row} and {row + 3}",
            f"delete from t where id % 200 = {row}",
        ][self._chance.randrange(3)]
        Writer.begun += 1
        with connection.cursor() as cursor:
            for each in ("begin", f"insert into ledger values ({Writer.begun})", statement, "commit"):
                cursor.execute(each)

    def stop(self) -> None:
        """Return when nothing more is written."""
        self._stopping.set()
        self.join(120)
        assert not self.is_alive()


class Chaos:
    """Everything that runs, and what can happen to it. `disk` has the edge's state and spool."""

    def __init__(
        self, folder: Path, kafka: Any, database: Any, make_edge: Callable[..., EdgeUnderTest], disk: Volume
    ) -> None:
        port = free_port()
        self.wire = Proxy("127.0.0.1", port)
        self.kafka, self.database, self.disk = kafka, database, disk
        self.edge = edge = make_edge(database, f"amqp://127.0.0.1:{self.wire.port}")
        text = edge.path.read_text().replace('folder = "state"', f'folder = "{disk.path / "state"}"')
        edge.path.write_text(text + _SPOOL)
        self.bridge_file = files.bridge(
            folder / "bridge.toml",
            bootstrap=kafka.bootstrap,
            listen=f"127.0.0.1:{port}",
            sources=[edge.source],
            stream=STREAM,
        )
        run = ["run", "--config"]
        self.bridge = Supervised("bridge", command("bridge", *run, str(self.bridge_file)), log=folder / "bridge.log")
        self.capture = Supervised("edge", command("edge", *run, str(edge.path)), log=folder / "edge.log")
        self._follower: Follower | None = None

    def start(self) -> None:
        """Make the tables and the source, and start bridge and edge."""
        for statement in TABLES:
            self.database.execute(statement)
        headrace("bridge", "init", "--config", str(self.bridge_file))
        headrace("edge", "init", "--config", str(self.edge.path))
        self._follower = Follower(self.kafka.bootstrap, STREAM, 1)
        self.bridge.start()
        self.capture.start()

    def stop(self) -> None:
        """End bridge and edge."""
        for part in (self.capture, self.bridge):
            part.stop_at_once()
            # Shown where the test fails.
            print(f"--- {part.name}, {part.restarts} restarts\n{part.tail(15)}")
        if self._follower is not None:
            self._follower.stop()
        self.wire.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def strikes(self) -> list[Callable[[], None]]:
        """Return what can happen to a server that nobody restores."""
        return [
            self.capture.kill, self.bridge.kill, self.crash_the_server, self.crash_kafka, self.wire.cut, self.fill_the_disk,
        ]  # fmt: skip

    def crash_the_server(self) -> None:
        """Kill the database's server, and start it."""
        self._forget_connection()
        self.database_server.kill()
        self.database_server.start()

    def crash_kafka(self) -> None:
        """Kill the broker, and start it."""
        self.kafka.kill()
        self.kafka.start()

    def fill_the_disk(self) -> None:
        """Fill the edge's disk while its wire is cut, so that nothing can go anywhere, and free it."""
        self.wire.stop()
        self.disk.fill()
        enough = Writer.begun + 50
        eventually(lambda: Writer.begun > enough, 180, saying="the source goes on")
        self.wire.start()
        self.disk.free()

    def back_up(self) -> None:
        """Keep a copy of the server's data as they are now."""
        self._stopped_while(lambda data, kept: subprocess.run(["cp", "-a", data, kept], check=True))

    def restore(self) -> None:
        """Put the copy in the place of the data: the edge stops for an operator, who begins again with a copy of all tables."""

        def put_back(data: Path, kept: Path) -> None:
            shutil.rmtree(data)
            kept.rename(data)

        self._stopped_while(put_back)
        eventually(lambda: self.capture.gave_up is not None, 120, saying="the edge stops")
        assert self.capture.gave_up == 3, self.capture.tail()
        assert "restored" in self.capture.tail() or "set back" in self.capture.tail(), self.capture.tail()
        (self.disk.path / "state").rename(self.disk.path / "former")
        if hasattr(self.edge, "slot"):
            self.database.execute(f"select pg_drop_replication_slot('{self.database.name}')")
        headrace("edge", "init", "--snapshot", "--replace", "--config", str(self.edge.path))
        self.capture.gave_up = None
        self.capture.start()

    @property
    def database_server(self) -> Any:
        """The database's server."""
        return getattr(self.database, "server", None) or self.database.postgres

    def _stopped_while(self, change: Callable[[Path, Path], Any]) -> None:
        server = self.database_server
        self._forget_connection()
        server.stop()
        change(server.data, server.data.with_name("backup"))
        server.start()

    def _forget_connection(self) -> None:
        if (connection := self.database._connection) is not None:
            self.database._connection = None
            with contextlib.suppress(Exception):
                connection.close()

    def changes(self) -> list[tuple[Any, dict[str, Any]]]:
        """Return key and value of all that Kafka has of tables, in order."""
        # A truncate has no key.
        read = (it for it in read_committed(self.kafka.bootstrap, STREAM) if it.value)
        records = [(json.loads(it.key or b"null"), json.loads(it.value or b"null")) for it in read]
        return [(key, value) for key, value in records if value.get("op") in set("cudrt")]

    def wait_for_more(self, count: int) -> None:
        """Wait until so many more changes are in Kafka."""
        assert self._follower is not None
        wanted, follower = self._follower.total + count, self._follower

        def there() -> bool:
            self.capture.check()
            self.bridge.check()
            return follower.total >= wanted

        eventually(there, 300, every=0.1, saying=f"{count} more changes arrive")


def tables_of(changes: list[tuple[Any, dict[str, Any]]]) -> dict[str, dict[int, Any]]:
    """Return the rows that a consumer of the topic has of each table."""
    tables: dict[str, dict[int, Any]] = {}
    for key, value in changes:
        rows = tables.setdefault(value["source"]["table"], {})
        if value["op"] == "t":
            rows.clear()
        elif value["op"] == "d":
            # While a table is copied, of a row that has not come yet.
            rows.pop(key["id"], None)
        else:
            rows[key["id"]] = value["after"]
    return tables


def run(chaos: Chaos, seed: int) -> None:
    """Strike everything, twice, with DDL between; restore the server from a backup in the middle; and compare."""
    chance = random.Random(seed)
    chaos.start()
    writer = Writer(chaos.database, chance)
    writer.start()
    ddl = iter(DDL)
    for turn in range(2):
        strikes = chaos.strikes()
        chance.shuffle(strikes)
        for strike in strikes:
            chaos.wait_for_more(BETWEEN)
            statement = next(ddl, "") if chance.randrange(2) or turn else ""
            print(f"{getattr(strike, '__name__', strike)}; {statement}", flush=True)
            strike()
            if statement:
                chaos.database.execute(statement)
        if turn == 0:
            chaos.wait_for_more(BETWEEN)
            writer.stop()
            # What comes behind the backup is in Kafka, and not in the database any more.
            compare(chaos)
            chaos.back_up()
            writer = Writer(chaos.database, chance)
            writer.start()
            chaos.wait_for_more(BETWEEN)
            writer.stop()
            print("the server is restored", flush=True)
            chaos.restore()
            writer = Writer(chaos.database, chance)
            writer.start()
    chaos.wait_for_more(BETWEEN)
    writer.stop()
    compare(chaos)
    changes = chaos.changes()
    positions = [value["source"]["position"] for _, value in changes]
    assert positions == sorted(set(positions))
    written = [key["id"] for key, value in changes if value["op"] == "c" and value["source"]["table"] == "ledger"]
    assert len(written) == len(set(written))
    print(f"{len(changes)} changes, {len(written)} transactions, {chaos.capture.restarts} restarts of the edge")


def compare(chaos: Chaos) -> None:
    """Wait until what Kafka has makes the tables."""
    ledger = {number for (number,) in chaos.database.execute("select id from ledger")}
    truth = dict(chaos.database.execute("select id, note from t"))

    def arrived() -> bool:
        chaos.capture.check()
        tables = tables_of(chaos.changes())
        return set(tables["ledger"]) == ledger and {key: row["note"] for key, row in tables["t"].items()} == truth

    eventually(arrived, 300, every=1, saying="what is in Kafka makes the tables")
