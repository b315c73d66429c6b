"""A lake under attack: three honest databases with edges, a bridge, Kafka, loads and a console are real, and writers write while
a rogue edge, a principal of Kafka's and a console's visitor attack. Loads go on, and `verify` finds every honest row.
"""

import json
import sys
import threading
import urllib.request
from contextlib import closing

import pytest

from headrace import command
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from infra.local.server import free_port
from spark_jobs import load as job
from tests.amqp.interconnect_ends import pem
from tests.benchmarks import attacker
from tests.benchmarks.bridge_setup import Feeder
from tests.bridge.asked_edges import AskedTopics
from tests.hostile.attacked import HONEST, ROGUE, WatchedConsole, refusals, status_of
from tests.hostile.bodies import EPOCH, NAMES
from tests.hostile.peers import certified, message
from tests.hostile.test_memory import batch
from tests.hostile.test_records import ANSWERS, REQUESTS
from tests.integration.requests.deliveries import produce
from tests.kafka.reading import ends, read_committed
from tests.rules.waiting import eventually
from tests.servers.fix_stack import Database

pytest_plugins = ["tests.bridge.fix_bridge"]

STREAM = "bank"
_TABLES = """
create table accounts (id int primary key, balance numeric(12,2) not null, note text);
create table keyless (note text); alter table keyless replica identity full;
"""
_COLUMNS = [("id", "int4", None, None), ("balance", "numeric", 12, 2), ("note", "text", None, None)]


class Writer(threading.Thread):
    """Writes to a database until it is stopped."""

    def __init__(self, database):
        super().__init__(daemon=True)
        self.database, self.written, self.error = database, 0, None
        self._halt = threading.Event()
        self.start()

    def run(self):
        try:
            with closing(self.database.connect()) as connection, closing(connection.cursor()) as cursor:
                while not self._halt.wait(0.02):
                    number = self.written + 1
                    cursor.execute("insert into accounts values (%s, %s, 'new')", [number, number / 4])
                    cursor.execute("update accounts set balance = balance + 1 where id = %s", [number // 2])
                    cursor.execute("delete from accounts where id = %s", [number - 50 if number % 3 == 0 else 0])
                    cursor.execute("insert into keyless values (%s)", [str(number % 7)])
                    self.written = number
        except BaseException as error:  # noqa: BLE001 - the test raises it.
            self.error = error

    def stop(self):
        self._halt.set()
        self.join(60)
        if self.error is not None:
            raise self.error


def _record(number, *, table="accounts", **members):
    """Return a record as an edge would write it, with other members in place of some."""
    source = {
        "version": "0.2.0", "connector": "postgresql", "name": ROGUE, "ts_ms": 1_769_850_900_250, "snapshot": "false",
        "db": "bank", "schema": "public", "table": table, "txId": 7, "lsn": number,
        "position": f"{EPOCH:08x}/{number:016x}/00000000",
    } | members.pop("source", {})  # fmt: skip
    transaction = {"id": f"7:{number}", "total_order": 1, "last": True}
    return json.dumps({"source": source, "ts_ms": 1_769_850_900_261, "transaction": transaction} | members).encode()


def _schema(number, table="accounts", columns=_COLUMNS, key=("id",)):
    described = [
        {"name": name, "typeName": kind, "length": length, "scale": scale, "position": at, "optional": name not in key}
        for at, (name, kind, length, scale) in enumerate(columns, 1)
    ]
    change = {
        "type": "CREATE", "id": f'"public"."{table}"', "table": {"primaryKeyColumnNames": list(key), "columns": described},
    }  # fmt: skip
    about = {"databaseName": "bank", "schemaName": "public", "ddl": None, "tableChanges": [change]}
    return _record(number, table=table, **about)


def _row(number, identity, op="c", **members):
    row = {"id": identity, "balance": "1.00", "note": "forged"}
    return _record(number, before=row if op == "d" else None, after=None if op == "d" else row, op=op, **members)


#: What the rogue's own partition gets, one after the other, by what it would do; each takes the number of its transaction.
FORGED = (
    # Its own rows in the table that all share: forged, of the same keys as honest ones, deleted, and truncated.
    _schema, *(lambda n, identity=identity: _row(n, identity) for identity in range(1, 60)),
    *(lambda n, identity=identity: _row(n, identity, "d") for identity in range(1, 80)),
    lambda n: _record(n, before=None, after=None, op="t"),
    lambda n: _row(n, 1, source={"name": HONEST[0]}),
    lambda n: _row(n, 1, "d", source={"name": HONEST[1]}),
    lambda n: _record(n, before=None, after=None, op="t", source={"name": HONEST[2]}),
    # Places and times that nobody has.
    lambda n: _row(n, 2, source={"position": f"ffffffff/{n:016x}/00000000"}),
    lambda n: _row(n, 2, source={"position": "x"}),
    lambda n: _row(n, 2, source={"ts_ms": 1 << 62}),
    lambda n: _row(n, 2, transaction={"id": "x" * 10_000, "total_order": -1}),
    # Tables that are none, and names that would mean something elsewhere.
    lambda n: _schema(n, "../../etc"), lambda n: _schema(n, "accounts`; drop table x; --"), lambda n: _schema(n, "t" * 300),
    lambda n: _schema(n, "twice", [*_COLUMNS, *_COLUMNS]), lambda n: _schema(n, "none", []),
    lambda n: _schema(n, "other", key=("no",)),
    lambda n: _schema(n, "wide", [(f"c{each}", "text", None, None) for each in range(2000)], key=("c1",)),
    lambda n: _record(n, table="unseen", before=None, after={"id": 1}, op="c"),
    lambda n: _record(n, before=None, after={"id": 1}, op="x"), lambda n: _record(n, op="c"),
    lambda _: b"", lambda _: b"[" * 5000, lambda _: b"\xff\xfe", lambda _: b"null", lambda _: b"{}",
    *(lambda _, value=value: value.replace(b"a/two", b"london/one").replace(b"a/one", b"jakarta/bank")
      for value in NAMES.values()),
)  # fmt: skip


class Attacked:
    """The pipeline, its attackers' certificate and its lake."""

    def __init__(self, kafka, topic, outside, edges, files, databases, folder):
        self.bootstrap, self.files = kafka.bootstrap, files
        self.topic, self.topics = topic(4), AskedTopics(topic)
        secure = "".join(f'{name} = "{path}"\n' for name, path in pem(files, "bridge").items())
        secure += 'identities = { "edge-3" = ["london/*"] }\n'
        self.metrics = f"127.0.0.1:{free_port()}"
        sources = {source: [number] for number, source in enumerate((ROGUE, *HONEST))}
        self.bridge = outside(
            self.bootstrap, sources, topic=self.topic, secure=secure, more=self.topics.section, metrics=self.metrics
        )
        own = "".join(f'\n{name} = "{path}"' for name, path in pem(files, "edge-3").items())
        self.edges, self.writers, self.rogues = [], [], None
        for source, database in zip(HONEST, databases, strict=True):
            database.execute(_TABLES)
            # The rest of the section follows the address.
            edge = edges(database, f'amqps://localhost:{self.bridge.port}"{own}\n#"', source=source)
            edge.init()
            edge.start()
            self.edges.append(edge)
            self.writers.append(Writer(database))
        self.lake_file = folder / "lake.toml"
        named = ", ".join(f'"{source}"' for source in sources)
        self.lake_file.write_text(
            f'[lake]\nroot = "lake"\n[kafka]\nbootstrap = "{self.bootstrap}"\n[streams.{STREAM}]\ntopic = "{self.topic}"\n'
            f"sources = [{named}]\n{self.topics.section}"
        )
        self.console = WatchedConsole(files, self.bridge.path, "--lake", str(self.lake_file))

    def forge(self):
        """Have the rogue's certificate send, in batches of its own source, what no edge writes; all of it is taken."""
        rogue = certified(self.files, "jakarta-bank", self.bridge.port, f"cdc/{ROGUE}").attached()
        for number, forged in enumerate(FORGED):
            given, body = batch(number, [forged(number + 1)])
            sent = message(ROGUE, given | {"source": ROGUE}, body)
            rogue.act(lambda peer, number=number, sent=sent: peer.link.send(sent, tag=f"f{number}"))
        eventually(lambda: rogue.unanswered == 0, 120, saying="all have an outcome")
        rogue.close()
        forged = [each for each in read_committed(self.bootstrap, self.topic) if each.partition == 0]
        assert len(forged) == len(FORGED), rogue.rejected

    def honest_records(self):
        """Return how many records there are of the honest source that has least."""
        return min(end for place, end in ends(self.bootstrap, self.topic).items() if place.partition > 0)

    def attack(self):
        """Have the rogue go on attacking, a principal of Kafka's and a visitor of the console do so once."""
        self.rogues = Feeder(attacker, self.bridge.port, ROGUE, HONEST[0], 600, self.files, "jakarta-bank")
        self.rogues.ready()
        self.rogues.go()
        for topic, records in ((self.topics.names.requests, REQUESTS), (self.topics.names.answers, ANSWERS)):
            produce(self.bootstrap, topic, [(ROGUE.encode(), each) for each in records.values() if len(each) < 900_000])
        return self.console.attack()

    def load(self, spark):
        """Load once; return what the load reports. Tables that only the rogue has may stop."""
        before = [each.written for each in self.writers]
        report = job.run(spark, load(self.lake_file, LakeFile), STREAM)
        assert not {"public.accounts", "public.keyless"} & set(report.silver.problems), report
        eventually(
            lambda: all(each.written > seen for each, seen in zip(self.writers, before, strict=True)),
            saying="writers go on",
        )
        return report

    def close(self):
        self.console.close()
        if self.rogues is not None:
            self.rogues.close()


@pytest.fixture
def attacked(kafka, topic, outside, edges, certificates, postgres, tmp_path):
    databases = [Database(postgres) for _ in HONEST]
    made = Attacked(kafka, topic, outside, edges, certificates / "ours", databases, tmp_path)
    yield made
    made.close()
    for edge in made.edges:
        edge.kill()
    for each in databases:
        each.drop()


@pytest.fixture
def verify(attacked, monkeypatch, capsys, spark):
    """Return a function that verifies a source with the command, and returns its exit code and verdicts by table."""

    def run(source):
        arguments = ["verify", "--config", str(attacked.lake_file), "--json", "--source", source]
        monkeypatch.setattr(sys, "argv", ["headrace", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command.main()
        answer = capsys.readouterr()
        assert answer.out, f"exit code {ended.value.code}: {answer.err}"
        return ended.value.code, {each["table"]: each["verdict"] for each in json.loads(answer.out)["tables"]}

    return run


@pytest.mark.long
def test_a_lake_is_loaded_and_every_honest_row_is_verified_while_all_of_it_is_attacked(attacked, verify, spark):
    # Given honest rows in the lake,
    eventually(lambda: attacked.honest_records() > 100, saying="honest rows are in Kafka")
    attacked.load(spark)
    # when the rogue has forged what the bridge takes, and it and others attack from now on,
    attacked.forge()
    visitors = attacked.attack()
    # then loads go on,
    report = attacked.load(spark)
    # every honest source is verified, with its writer still at it,
    for source in HONEST:
        assert verify(source) == (0, {"public.accounts": "equal", "public.keyless": "equal"}), source
    # what is no record is kept apart with its source alone,
    root = load(attacked.lake_file, LakeFile).root
    apart = spark.read.format("delta").load(f"{root}/quarantine").select("source", "partition").distinct().collect()
    assert [(each.source, each.partition) for each in apart] == [(ROGUE, 0)], report
    # metrics, status and the console name the attacker and nobody else,
    text = attacked.console.page("/metrics")
    assert refusals("headrace_console", text, "console", "127.0.0.1") > 0
    text = urllib.request.urlopen(f"http://{attacked.metrics}/metrics", timeout=30).read().decode()
    assert all(refusals("headrace_bridge", text, door, ROGUE) > 0 for door in ("batch", "message"))
    assert not any(
        refusals("headrace_bridge", text, door, source) for door in ("batch", "message") for source in HONEST
    )
    assert f"{ROGUE}: inputs refused since the start: " in status_of(attacked.metrics)
    assert "suspect" in attacked.console.page(f"/sources/{ROGUE}")
    assert not any("suspect" in attacked.console.page(f"/sources/{source}") for source in HONEST)
    # and no process has ended.
    for each in visitors:
        each.close()
    assert [each.process.poll() for each in (attacked.bridge, attacked.console, *attacked.edges)] == [None] * 5
    for each in attacked.writers:
        each.stop()
    assert [edge.terminate() for edge in attacked.edges] == [0, 0, 0]
