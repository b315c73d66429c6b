"""A database under load that Debezium's engine reads into a real Kafka: edge, engine, bridge and server are killed at random.

`HEADRACE_KILLS` is how often for each database, `HEADRACE_SEED` repeats a run.
"""

import collections
import contextlib
import json
import os
import random
import signal
import threading

import psycopg2
import pymysql
import pytest

from infra.local.mariadb import Mariadb
from infra.local.postgres import Postgres
from infra.local.server import free_port
from tests.debezium.conftest import ENVIRONMENT
from tests.debezium.test_engine import SOURCE as POSTGRES
from tests.debezium.test_engine import engine_pid
from tests.debezium.test_engine_binlog import NO_TLS
from tests.debezium.test_engine_binlog import SOURCE as BINLOG
from tests.edge.under_test import EdgeUnderTest
from tests.kafka.connect import java
from tests.kafka.reading import ends, read_committed
from tests.rules.waiting import eventually
from tests.servers.debian import Mysql97
from tests.servers.fix_mariadb import MariadbDatabase
from tests.servers.fix_stack import Database, served

KILLS = int(os.environ.get("HEADRACE_KILLS") or 100)
COUNTERS = 5
#: How often each is killed among them all.
STRUCK = {"engine": 4, "edge": 3, "bridge": 2, "server": 1}
_GONE = (psycopg2.Error, pymysql.MySQLError, OSError)


class Writer(threading.Thread):
    """Writes rows by ascending ids, and counts in some counters, in transactions of any size, until it is stopped."""

    def __init__(self, database, chance):
        super().__init__(name="writer", daemon=True)
        self.database, self.chance, self.stopping = database, chance, threading.Event()

    def run(self):
        while not self.stopping.is_set():
            with (
                contextlib.suppress(*_GONE),
                contextlib.closing(self.database.connect()) as connection,
                connection.cursor() as cursor,
            ):
                # What was being committed when the server died is there or is not.
                cursor.execute("select coalesce(max(id), -1) + 1 from t")
                (first,) = cursor.fetchone()
                while not self.stopping.wait(0.05):
                    first = self.write(cursor, first)
            self.stopping.wait(0.1)

    def write(self, cursor, first):
        count = self.chance.choice([1, 1, 3, 50])
        cursor.execute("begin")
        cursor.execute(f"insert into t values {', '.join(f'({first + n}, 0)' for n in range(count))}")
        for counter in sorted(self.chance.sample(range(COUNTERS), 2)):
            cursor.execute(f"update counters set n = n + 1 where id = {counter}")
        cursor.execute("commit")
        return first + count

    def stop(self):
        self.stopping.set()
        self.join(60)


@pytest.fixture(params=["postgres", "mariadb", "mysql97"])
def database(request, tmp_path):
    """Yield a database of a server that may be killed: what it has committed is kept."""
    if request.param == "postgres":
        for server in served(Postgres(tmp_path / "server")):
            yield Database(server)
    else:
        kind = {"mariadb": Mariadb, "mysql97": Mysql97}[request.param]
        for server in served(kind(tmp_path / "server")):
            made = MariadbDatabase(server)
            yield made
            made.disconnect()


@pytest.fixture
def edge(database, tmp_path, monkeypatch):
    """Yield the file of an edge, whose process ends with the test, and the port that its bridge listens on."""
    monkeypatch.setenv("NO_PASSWORD", "")
    port = free_port()
    names = {"java": java(ENVIRONMENT), "name": database.name}
    if isinstance(database, Database):
        text = POSTGRES.format(port=database.postgres.port, **names)
    else:
        kind = database.server.kind
        text = BINLOG.format(port=database.server.port, kind=kind, server_id=9000, ssl=NO_TLS[kind], **names)
    (tmp_path / "edge").mkdir()
    made = EdgeUnderTest(tmp_path / "edge", text, f"amqp://127.0.0.1:{port}")
    yield made, port
    if made.process is not None and made.process.poll() is None:
        made.kill()
    print((made.folder / "edge.log").read_text()[-8000:])


class Victims:
    """What is killed, and how often each was."""

    def __init__(self, database, edge, bridge, restart_bridge):
        self.database, self.edge, self.bridge, self._restart_bridge = database, edge, bridge, restart_bridge
        self.struck = collections.Counter()

    def strike(self, what):
        assert self.edge.process.poll() is None, "the edge has ended"
        getattr(self, f"_strike_{what}")()
        self.struck[what] += 1

    def _strike_engine(self):
        # While its edge waits to start it again there is none.
        with contextlib.suppress(ValueError, ProcessLookupError, FileNotFoundError):
            os.kill(engine_pid(self.edge), signal.SIGKILL)

    def _strike_edge(self):
        self.edge.kill()
        self.edge.start()

    def _strike_bridge(self):
        self.bridge.kill()
        self.bridge = self._restart_bridge(path=self.bridge.path)

    def _strike_server(self):
        server = self.database.postgres if isinstance(self.database, Database) else self.database.server
        server.kill()
        server.start()


def read_changes(bootstrap, topic):
    """Return the committed changes."""
    values = [json.loads(each.value) for each in read_committed(bootstrap, topic) if each.value is not None]
    return [value for value in values if "op" in value]


def check(changes, rows, counters):
    """Fail unless each row was inserted once, by ascending ids, and each counter has counted up to what it is."""
    ids = [each["after"]["id"] for each in changes if each["op"] == "c"]
    assert ids == [*range(rows)], "rows were lost, doubled or are out of order"
    for counter, last in counters.items():
        counts = [each["after"]["n"] for each in changes if each["op"] == "u" and each["after"]["id"] == counter]
        assert counts == [*range(1, last + 1)], f"changes of counter {counter} were lost, doubled or are out of order"
    positions = [each["source"]["position"] for each in changes]
    assert positions == sorted(set(positions))


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_change_is_lost_doubled_or_out_of_order_whatever_is_killed(database, edge, kafka, topic, outside):
    seed = int(os.environ.get("HEADRACE_SEED") or random.SystemRandom().randrange(1_000_000))
    print(f"\nHEADRACE_SEED={seed}", flush=True)
    chance = random.Random(seed)
    edge, port = edge
    database.execute("create table t (id int primary key, note text)")
    database.execute("create table counters (id int primary key, n int)")
    database.execute(f"insert into counters values {', '.join(f'({n}, 0)' for n in range(COUNTERS))}")
    name = topic()
    victims = Victims(database, edge, outside(kafka.bootstrap, {"jakarta/bank": [0]}, topic=name, port=port), outside)
    edge.init()
    edge.start()
    writer = Writer(database, random.Random(seed))
    writer.start()

    def written():
        return sum(ends(kafka.bootstrap, name).values())

    for number in range(1, KILLS + 1):
        # Mostly while it sends, now and then before it does.
        if chance.random() < 0.8:
            wanted = written() + chance.randrange(1, 600)
            eventually(lambda wanted=wanted: written() >= wanted, 600, every=0.2, saying="changes arrive")
        victims.strike(chance.choices([*STRUCK], [*STRUCK.values()])[0])
        if number % 10 == 0:
            print(f"{number} kills: {dict(victims.struck)}, {written()} records", flush=True)
    writer.stop()
    with contextlib.closing(database.connect()) as connection, connection.cursor() as cursor:
        cursor.execute("select max(id) + 1 from t")
        (rows,) = cursor.fetchone()
        cursor.execute("select id, n from counters")
        counters = dict(cursor.fetchall())

    def newest():
        return any(each["after"]["id"] == rows - 1 for each in read_changes(kafka.bootstrap, name) if each["op"] == "c")

    eventually(newest, 600, every=2, saying="the newest row arrives")
    assert edge.terminate() == 0
    changes = read_changes(kafka.bootstrap, name)
    check(changes, rows, counters)
    print(f"{KILLS} kills, {dict(victims.struck)}: {len(changes)} changes, {rows} rows", flush=True)
