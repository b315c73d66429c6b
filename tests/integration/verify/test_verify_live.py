"""`headrace verify` while pgbench writes: database, edge, bridge, Kafka and lake are real, and nobody stops for it."""

import json
import subprocess
import sys
from contextlib import closing, contextmanager

import pytest

from headrace import command
from headrace.configuration.databases import PostgresqlConnection
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator, Retryable
from headrace.verify.postgres import database as source_module
from headrace.verify.postgres.database import SourceDatabase
from spark_jobs import load as job
from spark_jobs.silver import table_task
from spark_jobs.state import published
from tests.bridge.asked_edges import AskedTopics
from tests.lake.defect import as_a_load
from tests.rules.waiting import eventually

pytest_plugins = ["tests.bridge.fix_bridge"]

SOURCE, STREAM = "jakarta/bank", "bank"
#: Accounts that pgbench writes to, and others beyond them that it leaves alone.
WRITTEN, ALL = 2000, 2200
#: TPC-B on few accounts, with a row that is inserted and deleted within each transaction's life now and then.
SCRIPT = f"""
\\set aid random(1, {WRITTEN})
\\set delta random(-5000, 5000)
BEGIN;
UPDATE accounts SET balance = balance + :delta WHERE id = :aid;
INSERT INTO history (account, delta) VALUES (:aid, :delta);
DELETE FROM recent WHERE account = :aid;
INSERT INTO recent (account, note) VALUES (:aid, md5(random()::text));
END;
"""


class Bank:
    """A captured database, and its lake."""

    def __init__(self, database, lake_file, edge):
        self.database = database
        self.lake_file = lake_file
        self.edge = edge

    def transactions(self) -> int:
        ((count,),) = self.database.execute("SELECT count(*) FROM history")
        return count

    @contextmanager
    def written_to(self, folder):
        """Let pgbench write; it commits something before the body begins."""
        script = folder / "transfer.sql"
        script.write_text(SCRIPT)
        before = self.transactions()
        arguments = ["-n", "-c", "3", "-T", "600", "-R", "60", "-f", str(script), self.database.dsn]
        with subprocess.Popen(
            [self.database.postgres.bin("pgbench"), *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as writer:
            try:
                eventually(lambda: self.transactions() > before, saying="pgbench writes")
                yield
            finally:
                writer.terminate()

    def connect_directly(self):
        """Have the database connected to, in place of its edge."""
        with self.lake_file.open("a") as file:
            file.write(f"""
[sources."{SOURCE}"]
via = "direct"
[sources."{SOURCE}".postgresql]
host = "127.0.0.1"
port = {self.database.postgres.port}
database = "{self.database.name}"
user = "postgres"
""")

    def load(self, spark):
        job.run(spark, load(self.lake_file, LakeFile), STREAM).check()

    def load_until_published(self, spark, name, version):
        """Load until a table is published at a version or a later one."""

        def there() -> bool:
            self.load(spark)
            known = published.latest(spark, load(self.lake_file, LakeFile), STREAM).tables.get(name)
            return known is not None and known.version is not None and known.version >= version

        eventually(there, 300, every=0.5, saying=f"{name} is published at version {version}")

    def path(self, name):
        return table_task.path(load(self.lake_file, LakeFile), STREAM, name)


@pytest.fixture
def bank(database, edges, inside, kafka, topic, tmp_path):
    """Yield a bank whose changes go by edge and bridge to Kafka from its first row on."""
    name = topic()
    topics = AskedTopics(topic)
    bridge = inside(kafka.bootstrap, {SOURCE: [0]}, topic=name, more=topics.section)
    database.execute(
        "CREATE TABLE accounts (id int PRIMARY KEY, balance numeric(12,2) NOT NULL);"
        "CREATE TABLE history (id bigserial PRIMARY KEY, account int, delta int, at timestamptz DEFAULT now());"
        "CREATE TABLE recent (account int, note text, PRIMARY KEY (account, note));"
        "CREATE TABLE branches (id int PRIMARY KEY)"
    )
    edge = edges(database, f"amqp://127.0.0.1:{bridge.port}")
    edge.init()
    database.execute(f"INSERT INTO accounts SELECT n, 0 FROM generate_series(1, {ALL}) n")
    database.execute("INSERT INTO branches VALUES (1), (2)")
    path = tmp_path / "lake.toml"
    path.write_text(f"""
[lake]
root = "lake"
[kafka]
bootstrap = "{kafka.bootstrap}"
[streams.{STREAM}]
topic = "{name}"
sources = ["{SOURCE}"]
{topics.section}""")
    with edge.running() as running:
        yield Bank(database, path, running)


@pytest.fixture
def verify(bank, monkeypatch, capsys, spark):
    """Return a function that runs the command in this process, whose Spark session it shares; gives exit code and JSON."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["headrace", "verify", "--config", str(bank.lake_file), "--json", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            command.main()
        answer = capsys.readouterr()
        assert answer.out, f"exit code {ended.value.code}: {answer.err}"
        said = json.loads(answer.out)
        return ended.value.code, {each["table"].removeprefix("public."): each for each in said["tables"]}

    return run


def test_the_lake_is_proved_equal_at_one_position_while_pgbench_writes_and_what_was_altered_is_located(
    bank, verify, spark, tmp_path, monkeypatch, capsys
):
    with bank.written_to(tmp_path):
        # Nothing was ever loaded into silver: all of it is laid over nothing.
        code, found = verify()
        assert (code, {name: it["verdict"] for name, it in found.items()}) == (0, dict.fromkeys(found, "equal"))
        assert set(found) == {"accounts", "history", "recent", "branches"}

        # A load has published, and writers have gone on since.
        bank.load(spark)
        before = bank.transactions()
        eventually(lambda: bank.transactions() > before + 50, saying="more is written")
        code, found = verify()
        after = bank.transactions()
        assert (code, {it["verdict"] for it in found.values()}) == (0, {"equal"})
        # It stands within what was written meanwhile, all tables at one place of the log.
        assert before < found["history"]["rows_source"] < after
        assert len({it["place"] for it in found.values()}) == 1

        # One digit, one row too few, one row too many, in rows that nobody writes to; and the load publishes them.
        accounts = bank.path("public.accounts")
        with as_a_load(spark):
            spark.sql(f"UPDATE delta.`{accounts}` SET balance = balance + 0.01 WHERE id = {WRITTEN + 17}")
            spark.sql(f"DELETE FROM delta.`{accounts}` WHERE id = {WRITTEN + 170}")
            another = f"SELECT id + 900 AS id, * EXCEPT (id) FROM delta.`{accounts}` WHERE id = {WRITTEN + 1}"
            spark.sql(f"INSERT INTO delta.`{accounts}` BY NAME {another}")
        bank.load(spark)
        # And a table less at the source.
        bank.database.execute("DROP TABLE branches")
        code, found = verify("--sample", "100")
        assert code == 1
        assert (found["history"]["verdict"], found["recent"]["verdict"]) == ("equal", "equal")
        assert (found["branches"]["rows_source"], found["branches"]["rows_lake"]) == (None, 2)
        assert found["branches"]["verdict"] == "not compared"
        assert "it was dropped or renamed there" in found["branches"]["reasons"][0]
        assert sorted((it["what"], it["key"]["id"], it["columns"]) for it in found["accounts"]["differences"]) == [
            ("differs", str(WRITTEN + 17), ["balance"]),
            ("missing in the lake", str(WRITTEN + 170), []),
            ("only in the lake", str(WRITTEN + 901), []),
        ]
        ranges = [(it["column"], it["first"], it["last"]) for it in found["accounts"]["differing"]]
        assert ranges == [("id", 2003, 2024), ("id", 2157, None)]

    # Nothing connects into the region: without its edge there is no answer, and the message has the reason.
    bank.edge.stop()
    monkeypatch.setattr(
        sys, "argv", ["headrace", "verify", "--config", str(bank.lake_file), "--timeout", "20", "--source", SOURCE]
    )
    with pytest.raises(SystemExit) as ended:
        command.main()
    assert ended.value.code == 5
    assert "the edge did not receive the request in time" in capsys.readouterr().err


@pytest.mark.long
def test_an_idle_source_is_compared_as_surely_as_a_busy_one(bank, verify, spark):
    bank.connect_directly()
    bank.load_until_published(spark, "public.accounts", 0)
    eventually(
        lambda: verify("--table", "accounts", "--wait", "0")[0] == 0,
        300,
        every=0.5,
        saying="all that was written is there, and equal",
    )

    # A difference counts, since the marker that verification wrote has come behind all changes.
    with as_a_load(spark):
        spark.sql(f"DELETE FROM delta.`{bank.path('public.accounts')}` WHERE id = 7")
    bank.database.execute("UPDATE accounts SET balance = 1 WHERE id = 8")
    bank.load_until_published(spark, "public.accounts", 2)
    code, found = verify("--table", "accounts")
    assert (code, found["accounts"]["verdict"]) == (1, "not equal")
    assert [it["key"] for it in found["accounts"]["differences"]] == [{"id": "7"}]

    # It does not while changes may be on their way: the edge is gone, with a change that it has not sent.
    bank.edge.stop()
    bank.database.execute("UPDATE accounts SET balance = 1 WHERE id = 9")
    code, found = verify("--table", "accounts", "--wait", "1")
    assert (code, found["accounts"]["verdict"]) == (3, "not compared")
    assert "within 1 s nothing came that the source wrote after the snapshot" in found["accounts"]["reasons"][0]


@pytest.fixture
def address(database):
    def of(user="postgres"):
        return PostgresqlConnection(host="127.0.0.1", port=database.postgres.port, database=database.name, user=user)

    return of


def test_a_slot_is_made_for_a_moment_only(database, address):
    with SourceDatabase.connect(SOURCE, address(), placed=True) as source:
        assert source.place is not None
        eventually(lambda: database.execute("SELECT count(*) FROM pg_replication_slots WHERE temporary") == [(0,)])


def test_the_snapshot_has_what_committed_below_its_place_and_nothing_else(database, address):
    database.execute("CREATE TABLE t (id int); INSERT INTO t VALUES (1)")
    ((before,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")
    with SourceDatabase.connect(SOURCE, address(), placed=True) as source:
        database.execute("INSERT INTO t VALUES (2)")
        ((after,),) = database.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")

        assert source.query("SELECT id FROM public.t", "t") == [(1,)]
        assert before <= source.place.commit < after


def test_a_user_that_may_not_replicate_is_told_what_to_run(database, address):
    name = f"auditor_{database.name}"
    database.execute(f"CREATE ROLE {name} LOGIN")
    try:
        with pytest.raises(NeedsOperator, match="may not replicate") as raised:
            SourceDatabase.connect(SOURCE, address(name), placed=True).__enter__()
    finally:
        database.execute(f"DROP ROLE {name}")
    assert f'ALTER ROLE "{name}" REPLICATION' in raised.value.hint


def test_a_transaction_that_stays_open_holds_a_snapshot_up_for_so_long_only(database, address, monkeypatch):
    monkeypatch.setattr(source_module, "_SLOT_TIMEOUT", "200ms")
    database.execute("CREATE TABLE t (id int)")
    with closing(database.connect()) as other, other.cursor() as cursor:
        cursor.execute("BEGIN; INSERT INTO t VALUES (1)")
        with pytest.raises(Retryable, match="has been open for longer"):
            SourceDatabase.connect(SOURCE, address(), placed=True).__enter__()
