"""Few changes in large tables: what they do not touch is not read, and many truncates do not overflow the driver."""

import pytest

from spark_jobs.query import published_tables
from spark_jobs.silver import changes, table_task, target_schema

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

ACCOUNTS, WIDE = "public.accounts", "public.wide"
J, L = "jakarta/bank", "london/bank"


def columns(**kinds: str):
    return {name: (kind, None, None) for name, kind in kinds.items()}


def last_merge(lake, name=ACCOUNTS):
    """Return how the newest MERGE of a table was put."""
    path = table_task.path(lake.file, "bank", name)
    history = lake.spark.sql(f"DESCRIBE HISTORY delta.`{path}`").filter("operation = 'MERGE'").orderBy("version")
    return history.collect()[-1]["operationParameters"]


@pytest.mark.long
def test_few_changes_leave_files_of_other_keys_and_sources_unread(logged_lake):
    # given files with keys far apart, two sources, soft deletes
    lake = logged_lake('[streams.bank.tables."public.accounts"]\ndeletes = "soft"\n')
    first, other = lake.feeds
    wide = columns(id="int8", **{f"c{i}": "text" for i in range(40)})
    for feed in lake.feeds:
        feed.commit(feed.schema(columns(id="int8", note="text")), feed.insert(id=1, note="first"))
    first.commit(first.schema(wide, table=WIDE), first.insert(WIDE, id=1, c39="x"))
    lake.load()
    first.commit(*(first.insert(id=i, note="n") for i in range(1000, 1020)))
    lake.load()
    # when a row is deleted, and one changes without a large column (L16)
    first.commit(first.delete(id=1001), first.update(id=1002, unchanged=["note"]))
    assert lake.load().problems == {}
    # then
    stored = published_tables.frame(lake.spark, lake.file, "bank", ACCOUNTS)
    form = target_schema.TargetSchema(
        table=ACCOUNTS, key=("id",), columns={"id": stored.schema["id"].dataType}, canonical_key=True
    )
    result = changes.key_range_of(stored.filter("id > 1000"), form)
    assert (result.rows, result.sources, result.least, result.greatest) == (19, [J], "1001", "1019")
    assert len(stored.filter(result.condition()).inputFiles()) < len(stored.inputFiles())
    # when a source is truncated, among few changes of another (L17), thousands of times (L18)
    other.commit(*([other.truncate()] * 3000), other.insert(id=7, note="after"))
    first.commit(first.update(id=1003, note="changed"), first.update(WIDE, id=1, c39="y"))
    assert lake.load().problems == {}
    # then the MERGE looks for what it changes alone
    assert last_merge(lake)["notMatchedBySourcePredicates"] == "[]"
    living = lake.rows("id", "note", "_deleted_at IS NULL")
    assert [row for row in living if row[0] == L] == [(L, 1, "first", False), (L, 7, "after", True)]
    assert (J, 1001, "n", False) in living
    assert (J, 1002, "n", True) in living
    assert (J, 1003, "changed", True) in living
    assert len([row for row in living if row[0] == J and row[3]]) == 20
    # and a wide table has statistics of what its files are chosen by (L23)
    path = table_task.path(lake.file, "bank", WIDE)
    frame = lake.spark.read.format("delta").load(path)
    assert frame.columns[:3] == ["_source", "_position", "id"]
    assert frame.filter(f"_source = '{L}'").inputFiles() == []


@pytest.mark.long
def test_truncates_remove_rows_and_end_versions_of_their_source_alone(logged_lake):
    # given rows and their history, of tables with and without a key
    lake = logged_lake("history = true\n")
    log = columns(entry="text")
    for feed in lake.feeds:
        feed.commit(feed.schema(columns(id="int8", note="text")), *(feed.insert(id=i, note="a") for i in (1, 2, 3)))
        feed.commit(feed.schema(log, (), "public.log"), feed.insert("public.log", entry="a"))
    lake.load()
    # when rows of one source change, all end, and one comes back, twice
    one, _ = lake.feeds
    one.commit(one.update(id=1, note="b"), one.truncate(), one.insert(id=2, note="c"))
    one.commit(one.truncate("public.log"), one.insert("public.log", entry="b"))
    one.commit(one.truncate(), one.insert(id=2, note="d"))
    assert lake.load().problems == {}
    # then
    assert lake.rows("id", "note") == [(J, 2, "d"), *((L, i, "a") for i in (1, 2, 3))]
    assert lake.rows("entry", table="public.log") == [(J, "b"), (L, "a")]
    path = f"{lake.file.root}/history/bank/{ACCOUNTS}"
    versions = lake.spark.read.format("delta").load(path).selectExpr("_source", "id", "note", "_end_position IS NULL")
    assert sorted(map(tuple, versions.collect())) == [
        (J, 1, "a", False),
        (J, 1, "b", False),
        (J, 2, "a", False),
        (J, 2, "c", False),
        (J, 2, "d", True),
        (J, 3, "a", False),
        *((L, i, "a", True) for i in (1, 2, 3)),
    ]
