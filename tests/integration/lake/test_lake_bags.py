"""Tables without a key (Q3): their rows are a bag, in which equal rows are there as often as at the source."""

from contextlib import closing

import pytest

from headrace.errors import Retryable
from spark_jobs.bronze import increment
from spark_jobs.maintenance import replay as again
from spark_jobs.query.engine import SqlEngine
from spark_jobs.silver import load as silver
from spark_jobs.silver import rebuild
from spark_jobs.state import publication, published
from tests.lake import scenarios as lake_scenarios

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

J, L = "jakarta/bank", "london/bank"
CHANGED, COPIED, GIVEN, LOST, ALTERED, HALF = (
    f"public.{name}" for name in ("changed", "copied", "given", "lost", "altered", "half")
)
WORDS = {"word": ("text", None, None), "n": ("int4", None, None)}
A, B, NONE = {"word": "a", "n": 1}, {"word": "b", "n": 2}, {"word": None, "n": None}


def test_q3_a_table_without_a_key_has_equal_rows_as_often_as_its_source(logged_lake):
    lake_scenarios.run(logged_lake(), changed, copied, copied_too_late)


@pytest.mark.long
def test_q3_a_table_without_a_key_is_built_again_from_bronze_whatever_became_of_it(spark, logged_lake):
    lake = logged_lake()
    lake_scenarios.run(lake, changed, copied, given_a_key, that_lost_its_key, altered)
    before = {table: rows(lake, table) for table in (CHANGED, COPIED, GIVEN, ALTERED)}
    # and what is built again from bronze is the same, from the beginning and from the newest copy
    assert again.of_silver(spark, lake.file, "bank").problems == {}
    assert {table: rows(lake, table) for table in before} == before
    assert rebuild.rebuild(spark, lake.file, "bank", COPIED).copies.keys() == {J}
    assert rows(lake, COPIED) == before[COPIED]


@pytest.mark.long
def test_q3_deleted_rows_of_a_table_without_a_key_stay_marked_and_newest_rows_are_shown_live(
    spark, logged_lake, monkeypatch
):
    lake = logged_lake('deletes = "soft"\n')
    source, _ = lake.feeds
    # given rows, of which two are taken by changes that are in bronze alone
    source.commit(source.schema(WORDS, (), CHANGED), *(source.insert(CHANGED, **row) for row in (A, A, A, B)))
    lake.load()
    source.commit(
        source.delete(CHANGED, **A),
        source.update(CHANGED, before=A, **B),
        source.insert(CHANGED, **NONE),
        source.delete(CHANGED, **NONE),
    )
    lake.to_bronze()
    monkeypatch.setattr(increment, "beyond", lambda *_: {})
    query = "SELECT word, n, _deleted_at IS NULL AS lives FROM {}.changed ORDER BY ALL"
    expected = [(None, None, False), ("a", 1, False), ("a", 1, False), ("a", 1, True), ("b", 2, True), ("b", 2, True)]
    # when and then
    with closing(SqlEngine(spark.newSession(), lake.file)) as sql_engine:
        assert [tuple(row) for row in sql_engine.ask(query.format("silver_live")).collect()] == expected
        lake.load()
        assert [tuple(row) for row in sql_engine.ask(query.format("silver")).collect()] == expected
        # and a truncate ends those that live, whatever was deleted ahead of it
        source.commit(source.delete(CHANGED, **B), source.truncate(CHANGED), source.insert(CHANGED, **A))
        source.commit(source.delete(CHANGED, **A), source.insert(CHANGED, **B))
        lake.load()
        values = [tuple(row) for row in sql_engine.ask(query.format("silver")).collect()]
        assert [row for row in values if row[2]] == [("b", 2, True)]
        assert len(values) == 8


@pytest.mark.long
def test_q3_rows_that_were_missing_are_a_warning_when_a_load_ended_ahead_of_its_publication(logged_lake, monkeypatch):
    lake = logged_lake()
    source, _ = lake.feeds
    source.commit(source.schema(WORDS, (), HALF), source.insert(HALF, **A))
    lake.load()
    source.commit(source.delete(HALF, **B), source.insert(HALF, **A))
    lake.to_bronze()

    def ends(*_given, **_options):
        raise Retryable("the load ends here")

    with monkeypatch.context() as patch:
        patch.setattr(publication, "append", ends)
        with pytest.raises(Retryable, match="ends here"):
            silver.load(lake.spark, lake.file, "bank")
    # more comes in between
    source.commit(source.delete(HALF, **A))
    lake.load()
    warnings = published.latest(lake.spark, lake.file, "bank").tables[HALF].warnings.values()
    assert any("needs copy: 1 rows that were updated or deleted are not in silver" in text for text in warnings)
    assert rows(lake, HALF) == [(J, "a", 1)]


def rows(lake, table):
    return sorted(lake.rows("word", "n", table=table), key=str)


def changed(lake):
    first, other = lake.feeds
    inserts = [first.insert(CHANGED, **row) for row in (A, A, A, B, B, NONE, NONE)]
    first.commit(first.schema(WORDS, (), CHANGED), *inserts)
    other.commit(other.schema(WORDS, (), CHANGED), other.insert(CHANGED, **A))
    yield
    # one of three, one of two, one with nulls; another source's equal row stays
    first.commit(first.delete(CHANGED, **A), first.update(CHANGED, before=B, **A), first.delete(CHANGED, **NONE))
    yield
    expected = [(J, None, None), (J, "a", 1), (J, "a", 1), (J, "a", 1), (J, "b", 2), (L, "a", 1)]
    assert rows(lake, CHANGED) == sorted(expected, key=str)
    # what changes again and again within a load, and an update that changes nothing
    first.commit(
        first.insert(CHANGED, **B), first.update(CHANGED, before=B, **NONE), first.update(CHANGED, before=A, **A)
    )
    first.commit(first.delete(CHANGED, **NONE), first.delete(CHANGED, **NONE))
    report = yield
    expected.remove((J, None, None))
    assert rows(lake, CHANGED) == sorted(expected, key=str)
    assert (report.problems.get(CHANGED), report.warnings.get(CHANGED)) == (None, None)


def copied(lake):
    """The copy's rows are those at its truncate, and come behind changes that were made since."""
    source, _ = lake.feeds
    source.commit(source.schema(WORDS, (), COPIED), source.insert(COPIED, **A), source.delete(COPIED, **B))
    yield
    source.commit(source.copy_begins(WORDS, (), COPIED))
    source.commit(source.truncate(COPIED))
    source.commit(source.delete(COPIED, **B), source.update(COPIED, before=NONE, **A))
    yield
    # a copy that is begun again is of another moment
    source.commit(source.read(COPIED, **B))
    source.commit(source.copy_begins(WORDS, (), COPIED))
    source.commit(source.truncate(COPIED))
    source.commit(source.delete(COPIED, **A))
    source.commit(*(source.read(COPIED, **row) for row in (A, A, B, B)))
    yield
    assert rows(lake, COPIED) == [(J, "a", 1)]
    source.commit(source.update(COPIED, before=B, **NONE))
    source.commit(source.copy_ends(WORDS, (), COPIED))
    report = yield
    assert rows(lake, COPIED) == [(J, "a", 1), (J, "b", 2), (J, None, None)]
    assert COPIED not in report.warnings


def given_a_key(lake):
    source, _ = lake.feeds
    source.commit(source.schema(WORDS, (), GIVEN), *(source.insert(GIVEN, **row) for row in (A, A, B)))
    yield
    # within one load: what is changed without a key is applied ahead of what is changed with one
    source.commit(source.delete(GIVEN, **A), source.insert(GIVEN, **A), source.delete(GIVEN, **A))
    source.commit(source.schema(WORDS, ["n"], GIVEN), source.update(GIVEN, word="with a key", n=2))
    yield
    assert rows(lake, GIVEN) == [(J, "a", 1), (J, "with a key", 2)]


def that_lost_its_key(lake):
    source, _ = lake.feeds
    source.commit(source.schema(WORDS, ["n"], LOST), source.insert(LOST, **A), source.insert(LOST, **B))
    yield
    source.commit(source.update(LOST, word="c", n=2))
    source.commit(source.schema(WORDS, (), LOST), source.insert(LOST, **A), source.delete(LOST, word="c", n=2))
    yield
    assert rows(lake, LOST) == [(J, "a", 1), (J, "a", 1)]


def altered(lake):
    source, _ = lake.feeds
    wide = {"word": WORDS["word"], "n": ("int8", None, None), "more": WORDS["word"]}
    source.commit(source.schema(wide | WORDS, (), ALTERED), *(source.insert(ALTERED, **A, more=x) for x in "xy"))
    yield
    # a column that went is compared no more, and one that came is null
    source.commit(source.schema(WORDS, (), ALTERED), source.delete(ALTERED, **A), source.insert(ALTERED, **B))
    wide = {"word": WORDS["word"], "n": ("int8", None, None), "other": WORDS["word"]}
    source.commit(source.schema(wide, (), ALTERED), source.update(ALTERED, before=B | {"other": None}, **A, other="z"))
    yield
    assert len(rows(lake, ALTERED)) == 2


def copied_too_late(lake):
    """A row that is taken and was never there is a warning, until the table is copied again."""
    source, _ = lake.feeds
    source.commit(source.schema(WORDS, (), HALF), source.insert(HALF, **A))
    yield
    source.commit(source.delete(HALF, **B), source.delete(HALF, **B), source.insert(HALF, **A))
    report = yield
    assert "needs copy: 2 rows that were updated or deleted are not in silver" in report.warnings[HALF]
    assert rows(lake, HALF) == [(J, "a", 1), (J, "a", 1)]
    source.commit(source.truncate(HALF), source.insert(HALF, **B))
    # a change without its old row stops the table alone
    source.commit(source.update(HALF, **A))
    report = yield
    assert f"{HALF} has no key" in report.problems[HALF]
    source.commit(source.schema(WORDS, ["n"], HALF), source.insert(HALF, word="c", n=3))
    report = yield
    assert report.problems == {}
    assert rows(lake, HALF) == [(J, "a", 1), (J, "b", 2), (J, "c", 3)]
