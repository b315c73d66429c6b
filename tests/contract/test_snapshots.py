"""What consumers and operators may rely on of snapshots whatever the source's engine is: the same statements at both."""

import json
import random
import threading
from contextlib import closing

import pytest

from tests.fix_edge import arrive
from tests.integration.snapshots import ask, ended, folder, held, plans, records
from tests.waiting import eventually


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

    def ends(self, *tables, seconds=30):
        """Wait for the end of these tables' snapshots, and return all by the tables' names."""
        found = ended(self.edge, *map(self.named, tables), seconds=seconds)
        return {name.rpartition(".")[2]: table for name, table in found.items()}

    def plan(self, table):
        return plans(self.edge)[self.named(table)]

    def run(self, *statements):
        for statement in statements:
            self.database.execute(statement)

    def fill(self, table, rows, columns="id int primary key, n int", values="i, 0"):
        """Make a table with rows, `i` from 1 on."""
        numbers = f"(select seq as i from seq_1_to_{rows}) s" if self.is_mariadb else f"generate_series(1, {rows}) i"
        self.run(f"create table {table} ({columns})", f"insert into {table} select {values} from {numbers}")

    def stored(self, table):
        """Return the rows of a table of numbers by key, as `held` does."""
        names = ["id", "n"]
        rows = self.database.execute(f"select {', '.join(names)} from {table}")
        return {json.dumps({"id": row[0]}): dict(zip(names, row, strict=True)) for row in rows}


@pytest.fixture(params=["postgresql", "mariadb"])
def source(request, interconnect):
    """Return a source of one engine whose edge is initialised and does not run."""
    if request.param == "postgresql":
        database, edge = request.getfixturevalue("database"), request.getfixturevalue("edge")
        return Source(edge, database, "public")
    database = request.getfixturevalue("maria")
    return Source(request.getfixturevalue("maria_edge"), database, database.name)


def on_its_way(interconnect):
    """Wait until rows of a chunk are held back."""

    def held_back():
        held = [batch.values[-1] for _, batch in list(interconnect._holding) if batch.values]
        return any(b'"op":"r"' in value for value in held)

    eventually(held_back, saying="a chunk is on its way")


def test_every_row_comes_once_in_key_order_in_chunks_that_are_transactions(source, interconnect):
    source.fill("old", 3000)
    with source.edge.running():
        source.asks("old")
        table = source.ends("old")["old"]

    read = records(interconnect, "old", "r")
    assert [key["id"] for key, _ in read] == list(range(1, 3001))
    assert all(value["after"] == {"id": key["id"], "n": 0} for key, value in read)
    assert all(value["source"]["snapshot"] == "incremental" and value["before"] is None for _, value in read)
    assert (table.state, table.rows) == ("done", 3000)
    chunks = {}
    for _, value in read:
        chunks.setdefault(value["transaction"]["id"], []).append(value["transaction"])
    assert len(chunks) > 1
    for chunk in chunks.values():
        assert [one["total_order"] for one in chunk] == list(range(1, len(chunk) + 1))
        assert [one.get("last", False) for one in chunk] == [False] * (len(chunk) - 1) + [True]
    positions = [position for position, _, value in interconnect.records if value and "op" in value]
    assert positions == sorted(set(positions))


def test_wide_rows_come_in_chunks_of_bounded_size(source, interconnect):
    source.fill("wide", 200, columns="id int primary key, body text", values="i, repeat(md5(concat(i)), 1500)")
    with source.edge.running():
        source.asks("wide")
        table = source.ends("wide")["wide"]

    sizes = {}
    for _, value in records(interconnect, "wide", "r"):
        sizes[value["transaction"]["id"]] = sizes.get(value["transaction"]["id"], 0) + len(value["after"]["body"])
    assert (table.state, table.rows) == ("done", 200)
    assert max(sizes.values()) < 3_000_000


def taken(source):
    """Wait until the edge has taken every request."""
    eventually(lambda: not folder(source.edge).waiting(), saying="the requests are taken")


def test_a_request_left_while_the_edge_is_away_is_served_when_it_runs(source, interconnect):
    source.fill("old", 2)
    edge = source.edge

    asked = edge.command("snapshot", source.named("old"), "--where", "id > 1 -- or more")
    before = json.loads(edge.command("snapshot", "--status", "--json").stdout)
    with edge.running():
        source.ends("old")
    after = json.loads(edge.command("snapshot", "--status", "--json").stdout)

    assert asked.returncode == 0
    assert (before["requests_waiting"], before["tables"]) == (1, [])
    assert after["requests_waiting"] == 0
    assert [(it["table"], it["state"], it["rows"]) for it in after["tables"]] == [(source.named("old"), "done", 1)]
    assert [key["id"] for key, _ in records(interconnect, "old", "r")] == [2]


def test_init_with_snapshot_copies_every_captured_table(source, interconnect):
    source.fill("a", 1)
    source.fill("b", 2)
    asked = source.edge.command("init", "--snapshot")
    with source.edge.running():
        tables = source.ends("a", "b")

    assert asked.returncode == 0
    assert [key["id"] for table in "ab" for key, _ in records(interconnect, table, "r")] == [1, 1, 2]
    assert {name: table.state for name, table in tables.items()} == {"a": "done", "b": "done", "t": "done"}


def test_a_pause_holds_and_a_resume_goes_on_where_it_was(source, interconnect):
    source.fill("old", 30_000)
    with source.edge.running():
        arrive(interconnect, 30_000)
        interconnect.hold()
        source.asks("old")
        on_its_way(interconnect)
        ask(source.edge, kind="pause")
        taken(source)
        interconnect.let_go()
        eventually(lambda: source.plan("old").chunks > 0, saying="what was on its way is acknowledged")
        source.run("insert into t values (1, 'x')")
        eventually(lambda: records(interconnect, "t"), saying="the stream goes on")
        paused = folder(source.edge).plan()
        ask(source.edge, kind="resume")
        source.ends("old")

    assert paused.paused
    assert 0 < paused.tables[0].rows < 30_000
    assert [key["id"] for key, _ in records(interconnect, "old", "r")] == list(range(1, 30_001))


def test_a_cancelled_snapshot_ends_and_the_next_one_begins(source, interconnect):
    source.fill("old", 30_000)
    source.fill("other", 1)
    with source.edge.running():
        arrive(interconnect, 30_001)
        interconnect.hold()
        source.asks("old", "other")
        on_its_way(interconnect)
        source.asks("old", kind="cancel")
        taken(source)
        interconnect.let_go()
        tables = source.ends("other")

    assert (tables["old"].state, tables["other"].state) == ("cancelled", "done")
    assert len(records(interconnect, "old", "r")) < 30_000


@pytest.mark.parametrize(
    "statements",
    [
        ("truncate table old", "insert into old values (7, 7)"),
        ("alter table old add note varchar(9)", "update old set note = 'x', n = 5 where id > 29000"),
    ],
    ids=["truncated", "altered"],
)
def test_a_table_that_changes_as_a_whole_while_it_is_copied_is_the_sources_in_the_end(source, interconnect, statements):
    source.fill("old", 30_000)
    with source.edge.running():
        arrive(interconnect, 30_000)
        interconnect.hold()
        source.asks("old")
        on_its_way(interconnect)
        source.run(*statements)
        interconnect.let_go()
        table = source.ends("old")["old"]
        wanted = source.stored("old")

        def numbers():
            return {key: {"id": row["id"], "n": row["n"]} for key, row in held(interconnect, "old").items()}

        eventually(lambda: numbers() == wanted, saying="the consumer holds what the database holds")
    assert table.state == "done"


def test_replacing_tells_consumers_first_to_forget_the_table(source, interconnect):
    source.fill("old", 5)
    with source.edge.running():
        source.asks("old", replace=True)
        source.ends("old")

    assert [value["op"] for _, value in records(interconnect, "old")] == ["c"] * 5 + ["t"] + ["r"] * 5
    assert held(interconnect, "old") == source.stored("old")


def test_what_cannot_be_copied_is_said_with_what_to_do_and_the_stream_goes_on(source, interconnect):
    source.fill("good", 1)
    source.fill("keyless", 1, columns="id int, n int")
    with source.edge.running():
        source.asks("keyless", "missing")
        source.asks("good", where="nonsense = 1")
        tables = source.ends("good", "keyless", "missing")
        source.run("insert into t values (1, 'x')")
        eventually(lambda: records(interconnect, "t"), saying="the stream goes on")

    assert {table.state for table in tables.values()} == {"failed"}
    for name, said, hint in (("keyless", "has no key", "primary key"), ("missing", "does not exist", "Check its name"),
                             ("good", "nonsense", "condition")):  # fmt: skip
        assert said in tables[name].problem
        assert hint in tables[name].problem


WRITES = [
    "update w set n = n + 1 where id = %(key)s",
    "update w set id = %(other)s where id = %(key)s",
    "update w set id = %(key)s where id = %(other)s",
    "delete from w where id = %(key)s",
    "insert into w values (%(key)s, 1)",
]


class Writers:
    """Write to the table `w` until they are stopped, each to rows of its own."""

    def __init__(self, source, rows, count=3):
        self._source, self._rows, self._stop = source, rows, threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number, count)) for number in range(count)]

    def __enter__(self):
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_):
        self._stop.set()
        for thread in self._threads:
            thread.join(20)

    def _write(self, number, count):
        chance, offset = random.Random(number), 10 * self._rows
        with closing(self._source.database.connect()) as connection, connection.cursor() as cursor:
            # Slower than the edge reads, which may share this process.
            while not self._stop.wait(0.003):
                key, other = (chance.randrange(number, self._rows, count) for _ in range(2))
                try:
                    cursor.execute(chance.choice(WRITES), {"key": key, "other": offset + other})
                except Exception as error:
                    # The key is taken.
                    if "uplicate" not in str(error):
                        raise


def test_writers_never_make_a_copied_row_older_than_the_log(source, interconnect):
    source.fill("w", 3000)
    with source.edge.running():
        with Writers(source, 3000):
            source.asks("w")
            table = source.ends("w")["w"]
        wanted = source.stored("w")
        eventually(lambda: held(interconnect, "w") == wanted, saying="the consumer holds what the database holds")
    assert table.state == "done"


def test_killed_again_and_again_under_load_it_loses_nothing(source, interconnect):
    source.fill("w", 30_000)
    edge, chance = source.edge, random.Random(5)
    source.asks("w")
    with Writers(source, 30_000, 1):
        for _ in range(4):
            edge.start()
            # Chunks that are cut, sent, accepted, acknowledged: a kill may meet each.
            wanted = len(interconnect.records) + chance.randrange(1, 6_000)
            eventually(lambda wanted=wanted: len(interconnect.records) >= wanted, saying=f"{wanted} records arrive")
            edge.kill()
        edge.start()
        table = source.ends("w", seconds=60)["w"]
    wanted = source.stored("w")
    eventually(lambda: held(interconnect, "w") == wanted, saying="the consumer holds what the database holds")
    assert edge.terminate() == 0
    assert table.state == "done"
    # Only what was on its way at a kill is read again.
    assert len(records(interconnect, "w", "r")) < 2 * 30_000


def test_killed_again_and_again_beside_a_source_that_rests_every_row_arrives(source, interconnect):
    source.fill("w", 20_000)
    edge, chance = source.edge, random.Random(5)
    edge.start()
    arrive(interconnect, 20_000)
    source.asks("w")
    for _ in range(3):
        wanted = len(interconnect.records) + chance.randrange(1, 6_000)
        eventually(lambda wanted=wanted: len(interconnect.records) >= wanted, saying=f"{wanted} records arrive")
        edge.kill()
        edge.start()
    table = source.ends("w", seconds=60)["w"]
    assert edge.terminate() == 0

    assert table.state == "done"
    assert {key["id"] for key, _ in records(interconnect, "w", "r")} == set(range(1, 20_001))
