"""L8, T1, T7, L28: tables whose names collide, or hold what SQL and paths do not take, are loaded and queried like others."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from spark_jobs import storage
from spark_jobs.query import engine, published_tables
from spark_jobs.silver import table_task
from spark_jobs.state import names, retention

COLUMNS = {"id": ("int8", None, None), "name": ("text", None, None)}
TABLES = [
    *("sales.orders", "public.sales_orders", "public.Orders", "public.orders", "a.b_c", "A.b_c", "public.a_b_c"),
    *("public.special\"[`]$'", "public.orders.renamed", "own.заказы", "own.обзоры", "public./../../x", "public.a b"),
]


@pytest.mark.long
def test_every_table_has_a_name_of_its_own_that_can_be_queried(spark, logged_lake):
    # given a stream of tables with such names, two of them loaded before the others
    logged = logged_lake()
    source, lake = logged.feeds[0], logged.file
    for name in TABLES[:2]:
        source.commit(source.schema(COLUMNS, table=name), source.insert(name, id=1, name=name))
    logged.load()
    first = names.of(spark, lake, [("bank", name) for name in TABLES[:2]])
    source.commit(
        *(it for t in TABLES[2:] for it in (source.schema(COLUMNS, table=t), source.insert(t, id=1, name=t))),
        source.insert(TABLES[0], id=2, name=TABLES[0]),
    )
    # when
    assert logged.load().problems == {}
    # then each has rows of its own, under a name that stayed
    table_names = names.of(spark, lake, [("bank", name) for name in TABLES])
    assert {place: table_names[place] for place in first} == first
    with closing(engine.SqlEngine(spark.newSession(), lake)) as sql_engine:
        listed = {row["tableName"] for row in sql_engine.ask("SHOW TABLES IN silver").collect()}
        assert {name.casefold() for name in table_names.values()} <= listed
        for database in ("silver", "silver_live"):
            each = (f"SELECT DISTINCT '{name}' AS named, name FROM {database}.{name}" for name in table_names.values())
            rows = sql_engine.ask(" UNION ALL ".join(each)).collect()
            assert {row["named"]: row["name"] for row in rows} == {
                name: table for (_, table), name in table_names.items()
            }
    # and nothing is outside of the lake's folder
    assert {path.name for path in Path(lake.root).parent.iterdir()} == {"lake.toml", Path(lake.root).name}
    assert all(published_tables.frame(spark, lake, "bank", name) is not None for name in TABLES)
    # and maintenance can name the table that has a backtick
    special = next(name for name in TABLES if "`" in name)
    longer = replace(lake, lake=replace(lake.lake, keep_days=9))
    assert retention.ensure(spark, table_task.path(lake, "bank", special), retention.properties(longer))


def test_l54_tables_whose_names_are_others_as_an_address_go_on_from_their_own_commits(spark, logged_lake):
    """Where the root begins with `file:` commits of `public.a` were taken for those of `public.a#b`: each load ended."""
    logged = logged_lake()
    logged.file = replace(logged.file, lake=replace(logged.file.lake, root=f"file://{logged.file.root}"))
    source, tables = logged.feeds[0], ["public.a", "public.a#b", "public.xA", "public.x%41"]
    source.commit(*(it for t in tables for it in (source.schema(COLUMNS, table=t), source.insert(t, id=1, name=t))))
    logged.load()
    for number, some in enumerate((tables[::2], tables, tables[1::2]), 2):
        source.commit(*(source.insert(name, id=number, name=name) for name in some))
        assert logged.load().problems == {}

    def ids(table):
        return sorted(row["id"] for row in published_tables.frame(spark, logged.file, "bank", table).collect())

    assert {table: ids(table) for table in tables} == dict(zip(tables, [[1, 2, 3], [1, 3, 4]] * 2, strict=True))


@pytest.mark.long
def test_loads_that_record_names_at_the_same_time_never_give_one_twice(spark, lake_file):
    lake = lake_file(bank="bank")
    places = [(f"s{number}", table) for number in range(4) for table in ("public.accounts", "sales.orders")]

    def record(place):
        names.record(spark.newSession(), lake, [], [place])

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(record, places))
    # Nothing is remembered by this process alone.
    names._read.clear()
    recorded = spark.read.format("delta").load(names.path(lake)).collect()
    assert {(row["stream"], row["table"]) for row in recorded} == set(places)
    assert len({row["name"] for row in recorded}) == len(recorded) == len(places)
    # and recording them again adds nothing
    names.record(spark, lake, places, places)
    assert len(spark.read.format("delta").load(names.path(lake)).collect()) == len(places)


def test_names_that_this_process_recorded_are_not_read_again(spark, lake_file, monkeypatch):
    lake = lake_file(bank="bank")
    names.record(spark, lake, [], [("bank", "public.accounts")])
    monkeypatch.setattr(storage, "read_rows", lambda *_, **__: pytest.fail("read again"))
    assert names.of(spark, lake, [("bank", "public.accounts")]) == {("bank", "public.accounts"): "accounts"}
