"""T3, T4: a table whose rows cannot become what its schema is now stops, alone, and the remedy that it names works."""

import pytest

from headrace.errors import NeedsOperator
from spark_jobs.maintenance import replay_silver
from spark_jobs.silver import rebuild
from spark_jobs.state import published

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

ACCOUNTS, OTHER = "public.accounts", "public.other"
J, L = "jakarta/bank", "london/bank"


def columns(**kinds: str):
    return {name: (kind, None, None) for name, kind in kinds.items()}


def copy(feed, schema, *rows, key=("id",)):
    """Commit what `edge snapshot --replace` writes: a truncate, then the rows."""
    feed.commit(feed.schema(schema, key), feed.truncate())
    for row in rows:
        feed.commit(feed.read(**row))


def former(lake, path, *names):
    frame = lake.spark.read.format("delta").load(path)
    return sorted(map(tuple, frame.selectExpr("_source", *names).collect()))


def test_table_with_another_type_is_rebuilt_from_the_newest_copy_of_each_source_t4(logged_lake):
    # given two sources, and history
    lake = logged_lake("history = true\n")
    one, other = lake.feeds
    number, text = columns(id="int8", code="int4"), columns(id="int8", code="text")
    for feed in lake.feeds:
        feed.commit(feed.schema(number), feed.insert(id=1, code=1), feed.insert(id=2, code=2))
    lake.load()
    # when the type changes at one source
    one.commit(one.schema(text), one.insert(id=3, code="three"))
    one.commit(one.schema(table=OTHER), one.insert(OTHER, id=1, name="n", balance="1"))
    # then the table stops, alone, with the rows that it had, and names the remedy
    problems = lake.load().problems
    assert list(problems) == [ACCOUNTS]
    assert "column code" in problems[ACCOUNTS]
    assert f"headrace edge snapshot {ACCOUNTS} --replace" in problems[ACCOUNTS]
    assert f"headrace lake rebuild STREAM {ACCOUNTS}" in problems[ACCOUNTS]
    before = lake.rows("id", "code")
    assert before == [(J, 1, 1), (J, 2, 2), (L, 1, 1), (L, 2, 2)]
    # and without a newer copy a rebuild is refused, names the source that lacks one, and changes nothing
    with pytest.raises(NeedsOperator, match=f"yet from {J}$"):
        rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
    assert lake.rows("id", "code") == before
    # when both sources have the new type, and copy the table again
    copy(one, text, {"id": 1, "code": "one"}, {"id": 3, "code": "three"})
    copy(other, text, {"id": 2, "code": "two"})
    one.commit(one.update(id=1, code="ONE"))
    assert list(lake.load().problems) == [ACCOUNTS]
    done = rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
    # then
    assert lake.rows("id", "code") == [(J, 1, "ONE"), (J, 3, "three"), (L, 2, "two")]
    assert former(lake, done.former, "id", "code") == before
    assert len(former(lake, f"{done.former}-history", "id", "code")) == len(before)
    # and loads go on, with history
    one.commit(one.update(id=3, code="THREE"), one.delete(id=1))
    assert lake.load().problems == {}
    assert lake.rows("id", "code") == [(J, 3, "THREE"), (L, 2, "two")]
    known = published.latest(lake.spark, lake.file, "bank").tables[ACCOUNTS]
    path = f"{lake.file.root}/history/bank/{ACCOUNTS}"
    versions = lake.spark.read.format("delta").option("versionAsOf", known.history).load(path)
    assert versions.filter("id = 3").count() == 2
    # and a replay has the same rows
    assert replay_silver.replay(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id", "code") == [(J, 3, "THREE"), (L, 2, "two")]
    assert lake.rows("name", table=OTHER) == [(J, "n")]


@pytest.mark.parametrize("loads", ["each", "once"])
def test_table_is_rebuilt_by_the_load_that_finds_the_copy_where_the_file_allows_it_t4(logged_lake, loads):
    # given
    lake = logged_lake('on_incompatible = "rebuild"\n')
    one, _ = lake.feeds
    one.commit(one.schema(columns(id="int8", at="timestamp")), one.insert(id=1, at="2026-01-31T09:15:00"))
    if loads == "each":
        lake.load()
    one.commit(one.schema(columns(id="int8", at="date")), one.insert(id=2, at="2026-01-31"))
    # without a copy it stops
    if loads == "each":
        assert list(lake.load().problems) == [ACCOUNTS]
    # when a copy comes, and changes after it
    copy(one, columns(id="int8", at="date"), {"id": 1, "at": "2026-01-31"}, {"id": 2, "at": "2026-01-31"})
    one.commit(one.delete(id=2))
    # then
    assert lake.load().problems == {}
    assert lake.rows("id", "cast(at as string)") == [(J, 1, "2026-01-31")]


def test_table_whose_columns_were_renamed_or_added_is_reported_until_it_is_copied_again_l7(logged_lake):
    # given
    lake = logged_lake()
    one, _ = lake.feeds
    one.commit(one.schema(columns(id="int8", name="text")), one.insert(id=1, name="a"))
    assert lake.load().warnings == {}
    # when a column is renamed, and another one added with a default
    after = columns(id="int8", title="text", grade="int4")
    one.commit(one.schema(after), one.insert(id=2, title="b", grade=5))
    report = lake.load()
    # then the load reports it, once, and the table's state has it
    assert report.problems == {}
    assert "title may be the former name" in report.warnings[ACCOUNTS]
    assert "grade was added" in report.warnings[ACCOUNTS]
    one.commit(one.insert(id=3, title="c", grade=5))
    assert lake.load().warnings == {}
    state = published.latest(lake.spark, lake.file, "bank").tables[ACCOUNTS]
    assert list(state.warnings.values()) == [report.warnings[ACCOUNTS]]
    # and when the remedy that it names is followed
    copy(one, after, *({"id": i, "title": "t", "grade": 5} for i in (1, 2, 3)))
    lake.load()
    assert published.latest(lake.spark, lake.file, "bank").tables[ACCOUNTS].warnings == {}
    assert lake.rows("id", "title", "grade") == [(J, i, "t", 5) for i in (1, 2, 3)]


def test_renamed_key_column_stops_the_table_instead_of_doubling_rows_t3(logged_lake):
    # given lakes that load before the key is renamed, and after it alone
    renamed = columns(ident="int8", name="text")
    between, once = logged_lake(), logged_lake()
    for lake in (between, once):
        one, _ = lake.feeds
        one.commit(one.schema(columns(id="int8", name="text")), one.insert(id=1, name="a"), one.insert(id=2, name="b"))
        if lake is between:
            lake.load()
        one.commit(one.schema(renamed, ["ident"]), one.update(ident=1, name="A"))
        # then the message is about the key
        problem = lake.load().problems[ACCOUNTS]
        assert "its key was (id) and is (ident) now" in problem
        assert "no such value" not in problem
        assert "headrace lake rebuild" in problem
    assert between.rows("id", "name") == [(J, 1, "a"), (J, 2, "b")]
    # when the remedy is followed
    for lake in (between, once):
        one, _ = lake.feeds
        copy(one, renamed, {"ident": 1, "name": "A"}, {"ident": 2, "name": "b"}, key=["ident"])
        lake.load()
        rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
        # then
        assert lake.rows("ident", "name") == [(J, 1, "A"), (J, 2, "b")]
        one.commit(one.delete(ident=2))
        assert lake.load().problems == {}
        assert lake.rows("ident", "name") == [(J, 1, "A")]
