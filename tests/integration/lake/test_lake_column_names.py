"""Columns that differ by case alone, or are named like silver's own, have names of their own in SQL (T12)."""

import pytest

from headrace.lake.table import add_suffix
from spark_jobs.query import published_tables, snapshot
from spark_jobs.state import published
from tests.lake.verify_sides import SOURCE

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(900)

TABLE = "public.cased"
COLUMNS = ("Id", "id", "Note", "note", "_source", "price")
ID, NOTE, OWN = (add_suffix(name) for name in ("Id", "Note", "_source"))


def rows(lake, *columns):
    return lake.rows(*columns, table=TABLE)


@pytest.mark.long
def test_columns_that_differ_by_case_alone_are_loaded_queried_and_verified(logged_lake, database, verified, tmp_path):
    # given a table at the source, and its rows in the log
    database.execute(
        'CREATE TABLE cased ("Id" int, id int, "Note" text, note text, _source text, price numeric(8,2), PRIMARY KEY ("Id", id))'
    )
    database.execute("INSERT INTO cased VALUES (1, 2, 'A', 'a', 'own', 'NaN'), (2, 1, 'B', 'b', 'own', 1.5)")
    kinds = ("int4", "int4", "text", "text", "text", "numeric")
    declared = dict(zip(COLUMNS, ((kind, None, None) for kind in kinds), strict=True)) | {"price": ("numeric", 8, 2)}
    lake = logged_lake(f'[streams.bank.tables."{TABLE}"]\nhistory = true\ntrack_history_columns = ["Note"]\n')
    one, _ = lake.feeds
    one.commit(
        one.schema(declared, ["Id", "id"], TABLE),
        one.insert(TABLE, **dict(zip(COLUMNS, (1, 2, "A", "a", "own", "NaN"), strict=True))),
        one.insert(TABLE, **dict(zip(COLUMNS, (2, 1, "B", "b", "own", "1.50"), strict=True))),
    )
    # when
    assert lake.load().problems == {}
    # then every column is there under a name that can be queried, and listed
    assert rows(lake, ID, "id", NOTE, "note", OWN) == [
        (SOURCE, 1, 2, "A", "a", "own"),
        (SOURCE, 2, 1, "B", "b", "own"),
    ]
    (listed,) = published_tables.list_tables(lake.spark, lake.file, ["bank"], rows=False)
    assert listed.columns == {"Id": ID, "Note": NOTE, "_source": OWN}
    # and equal to the source's
    frame = published_tables.frame(lake.spark, lake.file, "bank", TABLE)
    assert verified(public__cased=frame)["public.cased"].equal
    # when a row changes without its large column, and a key changes
    database.execute("""UPDATE cased SET note = 'c' WHERE "Id" = 1; UPDATE cased SET id = 7 WHERE "Id" = 2""")
    changed = dict(zip(COLUMNS, (1, 2, None, "c", "own", "NaN"), strict=True))
    moved = dict(zip(COLUMNS, (2, 7, None, "b", "own", "1.50"), strict=True))
    one.commit(
        one.update(TABLE, unchanged=["Note"], **{n: v for n, v in changed.items() if n != "Note"}),
        one.update(
            TABLE, before={"Id": 2, "id": 1}, unchanged=["Note"], **{n: v for n, v in moved.items() if n != "Note"}
        ),
    )
    lake.to_bronze()
    # then live rows have it
    state = snapshot.moment(lake.spark, lake.file, published.latest(lake.spark, lake.file, "bank"))
    live = lake.spark.sql(snapshot.sql(lake.spark, lake.file, state, TABLE, str(tmp_path / "live")))
    assert sorted(map(tuple, live.select(ID, "id", NOTE, "note").collect())) == [(1, 2, "A", "c"), (2, 7, "B", "b")]
    assert verified(public__cased=live)["public.cased"].equal
    # and so have published ones, and the history of the column that is tracked
    assert lake.load().problems == {}
    assert rows(lake, ID, "id", NOTE, "note") == [(SOURCE, 1, 2, "A", "c"), (SOURCE, 2, 7, "B", "b")]
    history = lake.spark.read.format("delta").load(f"{lake.file.root}/history/bank/{TABLE}")
    assert sorted(map(tuple, history.select(ID, "id", NOTE, "note").collect())) == [
        (1, 2, "A", "c"),
        (2, 1, "B", "b"),
        (2, 7, "B", "b"),
    ]
    # when a column comes that differs by case alone from one that is stored under its own name
    declared |= {"PRICE": ("text", None, None)}
    one.commit(one.schema(declared, ["Id", "id"], TABLE), one.update(TABLE, **changed, PRICE="x"))
    assert lake.load().problems == {}
    # then it has a name of its own
    other = add_suffix("PRICE")
    assert rows(lake, "id", "cast(price as string)", other) == [(SOURCE, 2, None, "x"), (SOURCE, 7, "1.50", None)]
