"""Copies of tables without a key (Q3): a moment and what changed since are what the source has, equal rows counted."""

from collections import Counter
from datetime import UTC, datetime

import pytest

from headrace.schema import COPY_BEGINS, COPY_ENDS
from tests.contract.copied import Writers
from tests.lake.logged import LoggedLake
from tests.rules.waiting import eventually

WRITES = [
    "insert into w values (1, null), (1, null), ({n}, {n})",
    "update w set n = n + 1 where id = {n} {one}",
    "delete from w where id = {n} {one}",
    "update w set n = null where id = {n}",
]


def writers(source, count=3):
    """Return writers to the table `w`; equal rows are all there is."""

    def write(cursor, number, chance):
        # Each has numbers of its own, so none waits for another.
        n = 2 + number + 3 * chance.randrange(300)
        first = f"and ctid = (select ctid from w where id = {n} limit 1)"
        cursor.execute(chance.choice(WRITES).format(n=n, one="limit 1" if source.is_mariadb else first))

    return Writers(source, write, count)


def make_table(source, rows):
    source.fill("w", rows, columns="id int, n int", values="2 + i % 900, case when i % 7 > 0 then i % 5 end")
    if not source.is_mariadb:
        source.run("alter table w replica identity full")


def bag(interconnect, table="w"):
    """Return the rows that a consumer holds which counts equal ones."""
    counts = Counter()
    seen = {position: value for position, _, value in list(interconnect.records) if value and value.get("op")}
    for _, value in sorted(seen.items(), key=lambda one: str(one[0])):
        if value["source"]["table"] != table:
            continue
        if value["op"] == "t":
            counts.clear()
        for name, count in (("before", -1), ("after", 1)):
            if value[name] is not None:
                counts[value[name]["id"], value[name]["n"]] += count
    return {row: count for row, count in counts.items() if count}


def stored(source, table="w"):
    return dict(Counter(tuple(row) for row in source.database.execute(f"select id, n from {table}")))


def equal(source, interconnect):
    wanted = stored(source)
    eventually(
        lambda: bag(interconnect) == wanted,
        saying="the consumer holds what the database holds",
        progress=lambda: len(interconnect.records),
    )


def test_writers_beside_a_copy_leave_each_row_as_often_as_it_is_there(source, interconnect):
    make_table(source, 12_000)
    with source.edge.running(), writers(source):
        source.asks("w")
        table = source.ends("w")["w"]
        source.asks("w")
        again = source.ends("w")["w"]
    assert (table.state, again.state) == ("done", "done")
    with source.edge.running():
        equal(source, interconnect)
    of_table = [value for _, _, value in interconnect.records if value and value["source"].get("table") == "w"]
    kinds = [value.get("op") or value["source"]["snapshot"] for value in of_table]
    assert kinds.count("t") == kinds.count(COPY_BEGINS) == kinds.count(COPY_ENDS) == 2
    assert kinds.index(COPY_BEGINS) < kinds.index("t") < kinds.index("r") < kinds.index(COPY_ENDS)


@pytest.mark.parametrize("source", ["postgresql", pytest.param("mariadb", marks=pytest.mark.long)], indirect=True)
def test_a_copy_that_was_killed_or_whose_table_was_emptied_or_altered_begins_again(source, interconnect):
    make_table(source, 60_000)
    edge = source.edge
    source.asks("w")
    with writers(source, 1):
        for _ in range(2):
            edge.start()
            before = len(interconnect.records)
            eventually(lambda before=before: len(interconnect.records) >= before + 5_000, saying="rows arrive")
            edge.kill()
    with edge.running():
        eventually(lambda: source.plan("w").chunks > 1, saying="it is copied")
        source.run("alter table w add column late int")
        eventually(lambda: source.plan("w").chunks > 1, saying="it is copied again")
        source.run("truncate table w", "insert into w values (1, 1, 1), (1, 1, 1)")
        table = source.ends("w")["w"]
        equal(source, interconnect)
    assert table.state == "done"
    assert not open_transactions(source)


def open_transactions(source):
    if source.is_mariadb:
        return source.database.execute("select count(*) from information_schema.innodb_trx")[0][0]
    found = (
        "select count(*) from pg_stat_activity where datname = current_database() and state like 'idle in transaction%'"
    )
    return source.database.execute(found)[0][0]


def test_a_table_without_a_key_is_copied_whole_alone(source):
    make_table(source, 1)
    with source.edge.running():
        source.asks("w", where="id = 1")
        table = source.ends("w")["w"]
    assert (table.state, "copied whole" in table.problem) == ("failed", True)


KINDS = "n int, t varchar(40), f {single}, g {double}, d numeric(12,3), at timestamp{fine}, b {bytes}, y date"
VALUES = "{i}, {t}, 0.1, 1e15 / 7, 12.5, '2026-01-31 09:15:00.25', {b}, null"


@pytest.mark.long
def test_silver_has_the_rows_of_the_stream_of_a_copy_and_its_changes(source, interconnect, spark, tmp_path):
    maria = source.is_mariadb
    types = {"single": "float", "double": "double", "fine": "(6)", "bytes": "blob"} if maria else {
        "single": "real", "double": "float8", "fine": "", "bytes": "bytea"}  # fmt: skip
    source.run(f"create table v ({KINDS.format(**types)})")
    make_table(source, 600)
    if not maria:
        source.run("alter table v replica identity full")

    def insert(i, count=3):
        values = VALUES.format(i=i, t="'é'" if i else "null", b="x'00ff'" if maria else "'\\x00ff'")
        source.run(*[f"insert into v values ({values})"] * count)

    insert(0)
    insert(1)
    lake = LoggedLake(spark, tmp_path / "lake", sources=[source.edge.source])
    with source.edge.running(), writers(source, 1):
        source.asks("v", "w")
        source.ends("v", "w")
        load(lake, interconnect)
        insert(2)
        one = "limit 1" if maria else "and ctid = (select min(ctid) from v where n = {})"
        source.run(*(f"delete from v where n = {i} {one.format(i)}" for i in range(3)))
        source.run(f"update v set t = 'other' where n = 1 {one.format(1)}", "update v set g = 2 where n = 2")
    with source.edge.running():
        # Its last changes may be behind the last one of a writer.
        eventually(lambda: [(it["source"]["table"], it["op"]) for it in interconnect.changes].count(("v", "u")) >= 3)
        equal(source, interconnect)
        report = load(lake, interconnect)

    assert (report.problems, report.warnings) == ({}, {})
    assert Counter(row[1:] for row in lake.rows("id", "n", table=source.named("w"))) == stored(source)
    kept = Counter(row[1:] for row in lake.rows("n", "t", "g", table=source.named("v")))
    assert sorted((n, t, g == 2, count) for (n, t, g), count in kept.items() if n) == [
        (1, "other", False, 1), (1, "é", False, 1), (2, "é", True, 2)]  # fmt: skip
    assert kept[0, None, 1e15 / 7] == 2


def load(lake, interconnect):
    """Load what has come; positions that came before are not there again."""
    (feed,) = lake.feeds
    for batch, outcome in list(interconnect.arrived)[getattr(feed, "taken", 0) :]:
        feed.taken = getattr(feed, "taken", 0) + 1
        if outcome == "accept":
            for key, value in zip(batch.keys, batch.values, strict=True):
                feed.waiting.append(("bank", 0, feed.offset, datetime.now(UTC), key, value))
                feed.offset += 1
    return lake.load()
