"""Databases of 50,000 tables, and tables of 10,000 partitions: what `init`, `doctor` and an edge need, and that all is right."""

import contextlib
import os
import subprocess
import time

import pytest

from edge.doctor.examine import examine
from infra.local.mariadb import Mariadb
from tests.integration.edge.snapshots import copy, held
from tests.integration.edge.test_edge_memory import LIMIT_MEGABYTES, peak
from tests.rules.waiting import eventually
from tests.servers.fix_mariadb import QUICK, MariadbDatabase
from tests.servers.fix_stack import Database, served

TABLES = int(os.environ.get("HEADRACE_TABLES") or 50_000)
PARTITIONS = int(os.environ.get("HEADRACE_PARTITIONS") or 10_000)
#: So many are copied, and changed.
FEW = 5
#: A server that need not keep anything.
FAST = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_locks_per_transaction": 4000}


class Measured:
    """Commands and the edge of a database of many tables, with what each of them took."""

    def __init__(self, edge, statements):
        self.edge, self._statements = edge, statements

    def command(self, *words):
        """Run a command to its end; return what it printed."""
        begun, before = time.monotonic(), self._statements()
        self.edge.start(*words[1:], command=words[0])
        process, megabytes = self.edge.process, 0.0
        # What it has at its end is not there any more.
        while process.poll() is None:
            with contextlib.suppress(OSError, TypeError, subprocess.TimeoutExpired):
                megabytes = peak(self.edge)
                process.wait(0.02)
        self._say(words[0], megabytes, begun, before)
        assert process.wait(600) == 0, (self.edge.folder / "edge.log").read_text()[-2000:]
        assert megabytes < LIMIT_MEGABYTES

    def until(self, what, condition):
        """Wait until the edge that runs has done something."""
        begun, before = time.monotonic(), self._statements()
        eventually(condition, 1800, every=0.2, saying=what)
        self._say(what, peak(self.edge), begun, before)
        assert peak(self.edge) < LIMIT_MEGABYTES

    def _say(self, what, megabytes, begun, before):
        spent = f"{time.monotonic() - begun:.1f} s, {self._statements() - before} statements"
        print(f"{what}: {spent}, at most {megabytes:.0f} MB", flush=True)


def serve(measured, interconnect, database, names, prefix):
    """Run doctor, init and the edge: rows of some tables are streamed and copied, and nothing is wrong."""
    edge = measured.edge
    measured.command("doctor")
    measured.command("init")
    edge.start()
    for number, name in enumerate(names):
        database.execute(f"insert into {name} values ({number}, 'a'), ({number + 1}, 'b')")
    measured.until("first changes", lambda: len(interconnect.changes) >= 2 * len(names))
    for name in names:
        database.execute(f"update {name} set note = 'c'")
    measured.until("changes of known tables", lambda: len(interconnect.changes) >= 4 * len(names))
    asked = [f"{prefix}.{name}" for name in names[:2]]
    begun = time.monotonic()
    copy(edge, *asked)
    print(f"copies: {time.monotonic() - begun:.1f} s")
    edge.terminate()
    measured.command("doctor")
    for number, name in enumerate(names):
        assert sorted((row["id"], row["note"]) for row in held(interconnect, name).values()) == [
            (number, "c"),
            (number + 1, "c"),
        ]
    assert [each.text for each in examine(edge.config) if each.level == "wrong"] == []


def statements_of(server):
    """Return what counts the transactions of a server's database, as many as statements that an edge runs."""

    def count(name):
        server.psql("select pg_stat_force_next_flush()")
        return int(server.psql(f"select xact_commit from pg_stat_database where datname = '{name}'"))

    return count


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_a_database_of_50_000_tables(private_postgres, edges, interconnect):
    server = private_postgres(settings=FAST)
    database = Database(server)
    for at in range(0, TABLES, 1000):
        database.execute(
            "; ".join(f"create table t{n} (id int primary key, note varchar(9))" for n in range(at, at + 1000))
        )
    edge = edges(database, interconnect.url)
    count = statements_of(server)
    names = [f"t{n * (TABLES // FEW)}" for n in range(FEW)]
    serve(Measured(edge, lambda: count(database.name)), interconnect, database, names, "public")


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_a_mariadb_of_50_000_tables(tmp_path, maria_edges, interconnect):
    settings = QUICK | {"innodb-file-per-table": 0, "innodb-doublewrite": 0, "table-definition-cache": 400}
    with contextlib.contextmanager(served)(Mariadb(tmp_path / "mariadb", settings=settings)) as server:
        database = MariadbDatabase(server)
        for number in range(TABLES):
            database.execute(f"create table t{number} (id int primary key, note varchar(9))")
        edge = maria_edges(database, interconnect.url)
        names = [f"t{n * (TABLES // FEW)}" for n in range(FEW)]

        def count():
            ((_, asked),) = database.execute("show global status like 'Questions'")
            return int(asked)

        serve(Measured(edge, count), interconnect, database, names, database.name)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("via_root", [False, True])
def test_a_table_of_10_000_partitions(private_postgres, edges, interconnect, via_root):
    server = private_postgres(settings=FAST)
    database = Database(server)
    database.execute("create table r (id int primary key, note varchar(9)) partition by range (id)")
    for at in range(0, PARTITIONS, 500):
        made = (
            f"create table r{n} partition of r for values from ({10 * n}) to ({10 * n + 10})"
            for n in range(at, at + 500)
        )
        database.execute("; ".join(made))
    if via_root:
        database.execute(f"create publication {database.name} for table r with (publish_via_partition_root = true)")
    edge = edges(database, interconnect.url)
    count = statements_of(server)
    measured = Measured(edge, lambda: count(database.name))
    measured.command("doctor")
    measured.command("init")
    edge.start()
    # A row in each partition, in one transaction.
    database.execute(f"insert into r select 10 * n, 'a' from generate_series(0, {PARTITIONS - 1}) n")
    measured.until("a row of each partition", lambda: len(interconnect.changes) >= PARTITIONS)
    database.execute(
        f"update r set note = 'b' where id >= {10 * PARTITIONS - 100}; alter table r add more int; truncate r{PARTITIONS - 1}"
    )
    database.execute("insert into r values (5, 'c', 7)")
    measured.until("changes, a new column and a truncate", lambda: ends_with_new_column(interconnect))
    edge.terminate()
    measured.command("doctor")
    # In one pass: there are as many tables as partitions.
    by_table = {}
    for change in interconnect.changes:
        rows = by_table.setdefault(change["source"]["table"], {})
        if change["op"] == "t":
            rows.clear()
        else:
            rows[change["after"]["id"]] = change["after"]
    lost = [10 * PARTITIONS - 10]
    stored = sorted(id_ for (id_,) in database.execute("select id from r")) + (lost if via_root else [])
    assert sorted(id_ for rows in by_table.values() for id_ in rows) == stored
    assert (by_table.keys() == {"r"}) == via_root


def ends_with_new_column(interconnect):
    """Whether the last change is one of the new column."""
    return any((change["after"] or {}).get("more") == 7 for change in interconnect.changes[-20:])
