"""A source whose tables are copied, whatever its engine."""

import json
import random
import threading
from contextlib import closing

from tests.integration.edge.snapshots import ask, ended, folder, plans
from tests.rules.waiting import eventually


class Source:
    """An edge of one engine, and its database."""

    def __init__(self, edge, database, prefix):
        self.edge, self.database, self._prefix = edge, database, prefix

    @property
    def is_mariadb(self):
        return self._prefix != "public"

    def named(self, table):
        return f"{self._prefix}.{table}"

    def asks(self, *tables, **asked):
        ask(self.edge, *map(self.named, tables), **asked)

    def ends(self, *tables, seconds=180):
        """Wait for the end of these tables' snapshots, and return all by the tables' names."""
        result = ended(self.edge, *map(self.named, tables), seconds=seconds)
        return {name.rpartition(".")[2]: table for name, table in result.items()}

    def plan(self, table):
        return plans(self.edge)[self.named(table)]

    def run(self, *statements):
        for statement in statements:
            self.database.execute(statement)

    def fill(self, table, rows, columns="id int primary key, n int", values="i, 0"):
        """Make a table with rows, `i` from 1 on."""
        numbers = f"generate_series(1, {rows}) i"
        if self.is_mariadb and self.database.server.kind == "mysql":
            self.run(f"set session cte_max_recursion_depth = {rows}")
            numbers = (
                f"(with recursive s (i) as (select 1 union all select i + 1 from s where i < {rows}) select i from s) s"
            )
        elif self.is_mariadb:
            numbers = f"(select seq as i from seq_1_to_{rows}) s"
        self.run(f"create table {table} ({columns})", f"insert into {table} select {values} from {numbers}")

    def stored(self, table):
        """Return the rows of a table of numbers by key, as `held` does."""
        names = ["id", "n"]
        rows = self.database.execute(f"select {', '.join(names)} from {table}")
        return {json.dumps({"id": row[0]}): dict(zip(names, row, strict=True)) for row in rows}


class Writers:
    """Write until they are stopped: `write` does it once, with a cursor, the writer's number and its chance."""

    def __init__(self, source, write, count=3):
        self._source, self._write, self._stop = source, write, threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(count)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _run(self, number):
        chance = random.Random(number)
        with closing(self._source.database.connect()) as connection, connection.cursor() as cursor:
            # Slower than the edge reads, which may share this process.
            while not self._stop.wait(0.003):
                self._write(cursor, number, chance)


def on_its_way(interconnect):
    """Wait until rows of a chunk are held back."""

    def held_back():
        held = [batch.values[-1] for _, batch in list(interconnect._holding) if batch.values]
        return any(b'"op":"r"' in value for value in held)

    eventually(held_back, saying="a chunk is on its way")


def taken(source):
    """Wait until the edge has taken every request."""
    eventually(lambda: not folder(source.edge).waiting(), saying="the requests are taken")
