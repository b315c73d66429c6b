"""Edge, link and a MySQL 9.7 are struck while applications write and alter a table: what arrived makes the table."""

import contextlib
import random
import threading
import time
from typing import Any

import pymysql
import pytest

from tests.edge.fix_edge import arrive
from tests.rules.waiting import eventually
from tests.servers.debian import Mysql97
from tests.servers.fix_mariadb import with_table
from tests.servers.fix_stack import served

#: In this order, each between two faults.
DDL = [
    "alter table t add column extra int, algorithm = instant",
    "alter table t modify note varchar(200)",
    "truncate table t",
    "alter table t drop column extra",
    "alter table t add unique (note)",
    "create table u like t",
]


@pytest.fixture
def killable(tmp_path):
    """Yield a database of a server that may be killed: what it has committed is on its disk."""
    for server in served(Mysql97(tmp_path / "mysql")):
        yield from with_table(server)


class Writer(threading.Thread):
    """Writes small transactions until it is stopped, whatever happens to the server."""

    def __init__(self, database, seed):
        super().__init__(name="writer", daemon=True)
        self.database, self.chance, self.stopping = database, random.Random(seed), threading.Event()

    def run(self):
        while not self.stopping.is_set():
            with (
                contextlib.suppress(pymysql.MySQLError, OSError),
                contextlib.closing(self.database.connect()) as connection,
            ):
                while not self.stopping.wait(0.005):
                    self.write(connection)

    def write(self, connection):
        number, kind = self.chance.randrange(200), self.chance.randrange(3)
        statement = [
            f"replace into t (id, note) values ({number}, uuid()), ({number + 1}, uuid())",
            f"update t set note = uuid() where id between {number} and {number + 3}",
            f"delete from t where id = {number}",
        ][kind]
        with connection.cursor() as cursor:
            cursor.execute("begin")
            cursor.execute(statement)
            cursor.execute("commit")

    def stop(self):
        self.stopping.set()
        self.join(60)


def table_of(interconnect):
    """Return the rows that what arrived makes, each record counted once."""
    rows: dict[Any, Any] = {}
    last = ""
    for change in interconnect.changes:
        if change["source"]["position"] <= last or change["source"]["table"] != "t":
            continue
        last = change["source"]["position"]
        if change["op"] == "t":
            rows.clear()
        elif change["op"] == "d":
            del rows[change["before"]["id"]]
        else:
            rows[change["after"]["id"]] = change["after"]["note"]
    return rows


@pytest.mark.timeout(600)
def test_what_arrived_makes_the_table_whatever_is_killed_and_altered(killable, maria_edges, interconnect, seed):
    edge = maria_edges(killable, interconnect.url)
    edge.init()
    edge.start()
    writer = Writer(killable, seed)
    writer.start()

    def kill_the_edge():
        edge.kill()
        edge.start()

    def crash_the_server():
        killable.disconnect()
        killable.server.kill()
        killable.server.start()

    strikes = [kill_the_edge, crash_the_server, interconnect.drop] * 2
    random.Random(seed).shuffle(strikes)
    for number, (strike, ddl) in enumerate(zip(strikes, DDL, strict=True), 1):
        arrive(interconnect, len(interconnect.changes) + 150, seconds=120)
        print(f"{number}: {strike.__name__}, {ddl}", flush=True)
        strike()
        killable.execute(ddl)
    arrive(interconnect, len(interconnect.changes) + 150, seconds=120)
    writer.stop()
    begun = time.monotonic()
    truth = dict(killable.execute("select id, note from t"))
    eventually(lambda: table_of(interconnect) == truth, 120, saying="what arrived makes the table")
    print(f"{len(interconnect.changes)} changes, {len(truth)} rows, drained in {time.monotonic() - begun:.1f} s")
    assert edge.terminate() == 0
