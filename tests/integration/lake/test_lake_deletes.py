"""Deleted rows that stay, marked: what a model says of every change, however the loads cut the log."""

from datetime import UTC, datetime

import pytest

from spark_jobs.maintenance import replay
from spark_jobs.query import engine
from spark_jobs.silver import load as silver
from spark_jobs.verify.lake import LakeAt

J, L = "jakarta/bank", "london/bank"
LOG = {"entry": ("text", None, None)}
HOUR = 3_600_000


class Model:
    """What a table shall hold: the values of each row by source and key, and the hour in which it was deleted."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, int], tuple[object, ...]] = {}
        self.gone: dict[tuple[str, int], int] = {}

    def put(self, source: str, key: int, *values: object) -> None:
        self.rows[source, key] = values
        self.gone.pop((source, key), None)

    def end(self, source: str, key: int, hour: int) -> None:
        self.gone.setdefault((source, key), hour)

    def clear(self, source: str, hour: int) -> None:
        for its, key in self.rows:
            if its == source:
                self.end(its, key, hour)

    def reported(self) -> list[tuple[object, ...]]:
        return sorted((*place, *values, self.gone.get(place)) for place, values in self.rows.items())


def marked(frame, *columns):
    """Return the rows of a table with the hour in which each was deleted."""
    rows = frame.selectExpr("_source", *columns, f"cast(unix_millis(_deleted_at) div {HOUR} as int)").collect()
    return sorted(tuple(row) for row in rows)


@pytest.fixture
def sql_engine(spark):
    made = []

    def make(lake, **when):
        made.append(engine.SqlEngine(spark, lake, **when))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.mark.long
def test_deleted_rows_stay_with_their_last_values(spark, logged_lake, sql_engine):
    # given two sources, and tables that are loaded without marks at first
    logged = logged_lake()
    first, other = logged.feeds
    hard, lake = logged.file, logged.set('deletes = "soft"\n')

    def loaded(file):
        logged.to_bronze()
        return silver.load(spark, file, "bank")

    model = Model()
    first.commit(first.schema(), *(first.insert(id=i, name=f"n{i}", balance="0") for i in range(1, 8)), at=HOUR)
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="0"), at=HOUR)
    for source in (first, other):
        source.commit(source.schema(LOG, (), "public.log"), source.insert("public.log", entry="old"), at=HOUR)
    loaded(hard)
    for i in range(1, 8):
        model.put(J, i, f"n{i}", 0)
    model.put(L, 1, "theirs", 0)

    # when rows go in every way: after a change, by a new key, made and gone within one load
    first.commit(first.update(id=1, name="last", balance="1"), first.delete(id=1), at=2 * HOUR)
    first.commit(first.update(before={"id": 2}, id=20, name="moved", balance="2"), first.delete(id=3), at=2 * HOUR)
    first.commit(first.insert(id=8, name="short", balance="0"), at=2 * HOUR)
    first.commit(first.delete(id=8), at=3 * HOUR)
    loaded(lake)
    model.put(J, 1, "last", 1)
    model.put(J, 20, "moved", 2)
    model.put(J, 8, "short", 0)
    for key, hour in ((1, 2), (2, 2), (3, 2), (8, 3)):
        model.end(J, key, hour)
    # then
    questions, then = sql_engine(lake), model.reported()
    assert marked(questions.ask("SELECT * FROM silver.accounts"), "id", "name", "int(balance)") == then

    # when rows that are written in part go, or get another key
    first.commit(first.update(before={"id": 7}, id=70, balance="7", unchanged=["name"]), at=4 * HOUR)
    first.commit(first.update(id=6, balance="3", unchanged=["name"]), first.delete(id=6), at=4 * HOUR)
    model.put(J, 70, "n7", 7)
    model.end(J, 7, 4)
    model.put(J, 6, "n6", 3)
    model.end(J, 6, 4)
    # and what was deleted comes back, once without a value that only the deleted row had
    first.commit(
        first.insert(id=1, name="again", balance="0"), first.update(id=1, name="again2", balance="0"), at=4 * HOUR
    )
    first.commit({**first.insert(id=3, balance="5"), "unchanged": ["name"]}, at=4 * HOUR)
    # and one source truncates, between changes of rows old and new
    first.commit(first.insert(id=9, name="nine", balance="0"), first.insert("public.log", entry="mid"), at=4 * HOUR)
    first.commit(first.truncate(), first.truncate("public.log"), at=5 * HOUR)
    first.commit(first.insert(id=4, name="new4", balance="0"), first.insert("public.log", entry="new"), at=6 * HOUR)
    first.commit(first.truncate(), first.insert(id=5, name="new5", balance="0"), at=7 * HOUR)
    first.commit({**first.insert(id=9, balance="6"), "unchanged": ["name"]}, at=7 * HOUR)
    model.put(J, 1, "again2", 0)
    model.put(J, 3, None, 5)
    model.put(J, 9, "nine", 0)
    model.clear(J, 5)
    model.put(J, 4, "new4", 0)
    model.clear(J, 7)
    model.put(J, 5, "new5", 0)
    model.put(J, 9, None, 6)
    log = [(J, "mid", 5), (J, "new", None), (J, "old", 5), (L, "old", None)]

    def agrees(database):
        accounts = questions.ask(f"SELECT * FROM {database}.accounts")
        assert marked(accounts, "id", "name", "int(balance)") == model.reported()
        assert marked(questions.ask(f"SELECT * FROM {database}.log"), "entry") == log

    # then live rows, those of the load, and those of a replay of all of it are the model's
    logged.to_bronze()
    agrees("silver_live")
    assert silver.load(spark, lake, "bank").problems == {}
    agrees("silver")
    replay.of_silver(spark, lake, "bank")
    agrees("silver")
    # and a moment ago is shown as it stood
    past = sql_engine(lake, as_of=datetime.fromtimestamp(3.5 * HOUR / 1000, UTC)).ask("SELECT * FROM silver.accounts")
    assert marked(past, "id", "name", "int(balance)") == then
    # and verification sees living rows alone
    side = LakeAt(spark, lake, "bank")
    assert sorted(row.id for row in side.frame(J, "public.accounts").collect()) == [5, 9]
    assert "_deleted_at" not in side.frame(L, "public.accounts").columns
    side.close()

    # when marks are not wanted any more, then a load stops there, and live rows are those that live
    first.commit(first.insert(id=6, name="new6", balance="0"), at=8 * HOUR)
    assert "its deleted rows are in silver" in loaded(hard).problems["public.accounts"]
    live = sql_engine(hard).ask("SELECT * FROM silver_live.accounts")
    assert "_deleted_at" not in live.columns
    living = [(J, 5), (J, 6), (J, 9), (L, 1)]
    assert sorted(tuple(row) for row in live.select("_source", "id").collect()) == living
    # and a replay removes the marked rows
    assert replay.of_silver(spark, hard, "bank").problems == {}
    left = sql_engine(hard).ask("SELECT * FROM silver.accounts")
    assert "_deleted_at" not in left.columns
    assert sorted(tuple(row) for row in left.select("_source", "id").collect()) == living
