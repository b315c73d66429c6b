"""T3, T4: a table whose rows cannot become what its schema is now stops, alone, and the remedy that it names works."""

from functools import partial

import pytest

from headrace.errors import NeedsOperator
from spark_jobs.maintenance import replay
from spark_jobs.silver import rebuild
from spark_jobs.state import published
from tests.lake import scenarios as lake_scenarios

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

TYPED, OTHER, WIDER = "public.typed", "public.other", "public.wider"
ALLOWED = EACH, _ = "public.each", "public.once"
KEYS_RENAMED = BETWEEN, _ = "public.between", "public.renamed"
J, L = "jakarta/bank", "london/bank"


def columns(**kinds: str):
    return {name: (kind, None, None) for name, kind in kinds.items()}


def copy(feed, table, schema, *rows):
    """Commit what `edge snapshot --replace` writes: a truncate, then the rows."""
    feed.commit(feed.schema(schema, table=table), feed.truncate(table))
    for row in rows:
        feed.commit(feed.read(table, **row))


def former(lake, path, *names):
    frame = lake.spark.read.format("delta").load(path)
    return sorted(map(tuple, frame.selectExpr("_source", *names).collect()))


def test_tables_that_stop_are_rebuilt_and_go_on(logged_lake):
    lake = logged_lake(f'[streams.bank.tables."{TYPED}"]\nhistory = true\n')
    lake_scenarios.run(lake, of_another_type_t4, with_columns_that_were_renamed_or_added_l7)
    # and a replay has the same rows
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id", "code", table=TYPED) == [(J, 3, "THREE"), (L, 2, "two")]
    assert lake.rows("name", table=OTHER) == [(J, "n")]


@pytest.mark.long
def test_tables_are_rebuilt_by_a_load_where_their_file_lets_it_and_stop_where_a_key_was_renamed(logged_lake):
    settings = "".join(f'[streams.bank.tables."{name}"]\non_incompatible = "rebuild"\n' for name in ALLOWED)
    lake = logged_lake(settings)
    lake_scenarios.run(
        lake,
        *(partial(rebuilt_by_the_load_that_finds_the_copy_t4, table) for table in ALLOWED),
        *(partial(with_a_renamed_key_t3, table) for table in KEYS_RENAMED),
    )
    assert replay.of_silver(lake.spark, lake.file, "bank").problems.keys() == set(KEYS_RENAMED)


def of_another_type_t4(lake):
    """A table is rebuilt from the newest copy of each source."""
    # given two sources, and history
    first, other = lake.feeds
    number, text = columns(id="int8", code="int4"), columns(id="int8", code="text")
    for feed in lake.feeds:
        feed.commit(feed.schema(number, table=TYPED), *(feed.insert(TYPED, id=i, code=i) for i in (1, 2)))
    yield
    # when the type changes at one source
    first.commit(first.schema(text, table=TYPED), first.insert(TYPED, id=3, code="three"))
    first.commit(first.schema(table=OTHER), first.insert(OTHER, id=1, name="n", balance="1"))
    problems = (yield).problems
    # then the table stops, alone, with the rows that it had, and names the remedy
    assert OTHER not in problems
    assert "column code" in problems[TYPED]
    assert f"headrace edge snapshot {TYPED} --replace" in problems[TYPED]
    assert f"headrace lake rebuild STREAM {TYPED}" in problems[TYPED]
    before = lake.rows("id", "code", table=TYPED)
    assert before == [(J, 1, 1), (J, 2, 2), (L, 1, 1), (L, 2, 2)]
    # and without a newer copy a rebuild is refused, names the source that lacks one, and changes nothing
    with pytest.raises(NeedsOperator, match=f"yet from {J}$"):
        rebuild.rebuild(lake.spark, lake.file, "bank", TYPED)
    assert lake.rows("id", "code", table=TYPED) == before
    # when both sources have the new type, and copy the table again
    copy(first, TYPED, text, {"id": 1, "code": "one"}, {"id": 3, "code": "three"})
    copy(other, TYPED, text, {"id": 2, "code": "two"})
    first.commit(first.update(TYPED, id=1, code="ONE"))
    assert TYPED in (yield).problems
    done = rebuild.rebuild(lake.spark, lake.file, "bank", TYPED)
    # then
    assert lake.rows("id", "code", table=TYPED) == [(J, 1, "ONE"), (J, 3, "three"), (L, 2, "two")]
    assert former(lake, done.former, "id", "code") == before
    assert len(former(lake, f"{done.former}-history", "id", "code")) == len(before)
    # and loads go on, with history
    first.commit(first.update(TYPED, id=3, code="THREE"), first.delete(TYPED, id=1))
    assert TYPED not in (yield).problems
    assert lake.rows("id", "code", table=TYPED) == [(J, 3, "THREE"), (L, 2, "two")]
    state = published.latest(lake.spark, lake.file, "bank").tables[TYPED]
    path = f"{lake.file.root}/history/bank/{TYPED}"
    versions = lake.spark.read.format("delta").option("versionAsOf", state.history).load(path)
    assert versions.filter("id = 3").count() == 2


def rebuilt_by_the_load_that_finds_the_copy_t4(table, lake):
    """Where the file allows it; in loads of their own, or in one."""
    one, _ = lake.feeds
    date = columns(id="int8", at="date")
    one.commit(one.schema(columns(id="int8", at="timestamp"), table=table))
    one.commit(one.insert(table, id=1, at="2026-01-31T09:15:00"))
    if table == EACH:
        yield
    one.commit(one.schema(date, table=table), one.insert(table, id=2, at="2026-01-31"))
    # without a copy it stops
    if table == EACH:
        assert table in (yield).problems
    # when a copy comes, and changes after it
    copy(one, table, date, {"id": 1, "at": "2026-01-31"}, {"id": 2, "at": "2026-01-31"})
    one.commit(one.delete(table, id=2))
    # then
    assert table not in (yield).problems
    assert lake.rows("id", "cast(at as string)", table=table) == [(J, 1, "2026-01-31")]


def with_columns_that_were_renamed_or_added_l7(lake):
    """It is reported until the table is copied again."""
    one, _ = lake.feeds
    one.commit(one.schema(columns(id="int8", name="text"), table=WIDER), one.insert(WIDER, id=1, name="a"))
    assert WIDER not in (yield).warnings
    # when a column is renamed, and another one added with a default
    after = columns(id="int8", title="text", grade="int4")
    one.commit(one.schema(after, table=WIDER), one.insert(WIDER, id=2, title="b", grade=5))
    report = yield
    # then the load reports it, once, and the table's state has it
    assert WIDER not in report.problems
    assert "title may be the former name" in report.warnings[WIDER]
    assert "grade was added" in report.warnings[WIDER]
    one.commit(one.insert(WIDER, id=3, title="c", grade=5))
    assert WIDER not in (yield).warnings
    state = published.latest(lake.spark, lake.file, "bank").tables[WIDER]
    assert list(state.warnings.values()) == [report.warnings[WIDER]]
    # and when the remedy that it names is followed
    copy(one, WIDER, after, *({"id": i, "title": "t", "grade": 5} for i in (1, 2, 3)))
    yield
    assert published.latest(lake.spark, lake.file, "bank").tables[WIDER].warnings == {}
    assert lake.rows("id", "title", "grade", table=WIDER) == [(J, i, "t", 5) for i in (1, 2, 3)]


def with_a_renamed_key_t3(table, lake):
    """The table stops instead of doubling rows, where loads ran before the key was renamed, and after it alone."""
    one, _ = lake.feeds
    one.commit(one.schema(columns(id="int8", name="text"), table=table))
    one.commit(*(one.insert(table, id=i, name=name) for i, name in ((1, "a"), (2, "b"))))
    if table == BETWEEN:
        yield
    one.commit(one.schema(columns(ident="int8", name="text"), ["ident"], table), one.update(table, ident=1, name="A"))
    problem = (yield).problems[table]
    # then the message is about the key
    assert "its key was (id) and is (ident) now" in problem
    assert "no such value" not in problem
    assert "headrace lake rebuild" in problem
    if table == BETWEEN:
        assert lake.rows("id", "name", table=table) == [(J, 1, "a"), (J, 2, "b")]
