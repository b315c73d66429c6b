"""History on real Delta tables: every version of a row once, with the times between which it was so at its source."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from spark_jobs.bronze import load as bronze
from spark_jobs.silver import load as silver
from spark_jobs.silver import scd2, table_task
from spark_jobs.state import published
from tests.lake.death import dying_before_it_publishes

J, L = "jakarta/bank", "london/bank"
HOURS = {int(datetime(2026, 1, 31, hour, tzinfo=UTC).timestamp() * 1000): hour for hour in range(24)}


def at(hour):
    return next(ms for ms, each in HOURS.items() if each == hour)


@pytest.fixture
def loaded(spark):
    def load(lake):
        bronze.load(spark, lake, "bank")
        report = silver.load(spark, lake, "bank")
        assert report.problems == {}
        return report

    return load


def kept(lake, text):
    """Return the lake's file with more said of its stream."""
    path = Path(lake.path)
    path.write_text(path.read_text() + text)
    return load_file(path, LakeFile)


def versions(spark, lake, name="public.accounts", columns=("id", "name")):
    table = published.latest(spark, lake, "bank").tables[name]
    path = table_task.history_path(lake, "bank", name)
    frame = spark.read.format("delta").option("versionAsOf", table.history).load(path)
    times = [f"unix_millis({column}) AS {column}" for column in (scd2.START, scd2.END)]
    rows = frame.selectExpr("_source", *(f"`{c}`" for c in columns), *times).collect()
    return sorted((*row[:-2], HOURS[row[-2]], HOURS.get(row[-1])) for row in rows)


def test_versions_of_rows_begin_and_end_with_their_changes(spark, logged_lake):
    # given
    logged = logged_lake("history = true\n")
    lake, (first, other) = logged.file, logged.feeds

    def load():
        assert logged.load().problems == {}

    first.commit(first.schema(), *(first.insert(id=i, name=f"n{i}", balance="1.00") for i in (1, 2, 3, 4)), at=at(1))
    other.commit(other.schema(), other.insert(id=1, name="theirs", balance="1.00"), at=at(1))
    load()
    # when rows change, twice in one transaction, move, go, come back, and change nothing
    first.commit(first.update(id=1, name="a", balance="1.00"), first.update(id=1, name="b", balance="1.00"), at=at(2))
    first.commit(first.update(before={"id": 2}, id=20, name="n2", balance="1.00"), at=at(3))
    first.commit(first.delete(id=3), at=at(4))
    load()
    first.commit(
        first.insert(id=3, name="again", balance="1.00"), first.update(id=4, name="n4", balance="1.00"), at=at(5)
    )
    load()
    expected = [
        (J, 1, "a", 2, 2),
        (J, 1, "b", 2, None),
        (J, 1, "n1", 1, 2),
        (J, 2, "n2", 1, 3),
        (J, 3, "again", 5, None),
        (J, 3, "n3", 1, 4),
        (J, 4, "n4", 1, None),
        (J, 20, "n2", 3, None),
        (L, 1, "theirs", 1, None),
    ]
    # then
    assert versions(spark, lake) == expected
    # when its source truncates between changes
    first.commit(first.update(id=4, name="gone", balance="1.00"), at=at(6))
    first.commit(first.truncate(), at=at(7))
    first.commit(first.insert(id=4, name="gone", balance="1.00"), at=at(8))
    load()
    # then what had not ended has, the other source's rows have not
    ended = [(*row[:-1], 7) if row[-1] is None and row[0] == J else row for row in expected]
    ended[ended.index((J, 4, "n4", 1, 7))] = (J, 4, "n4", 1, 6)
    assert versions(spark, lake) == sorted([*ended, (J, 4, "gone", 6, 7), (J, 4, "gone", 8, None)])


@pytest.mark.long
def test_history_is_built_from_bronze_when_it_is_wanted_later_and_done_again_without_harm(
    spark, feed, lake_file, loaded
):
    # given a table that is loaded without history, with columns that the log did not carry
    source = feed()
    lake = lake_file(bank=source.topic)
    columns = {"id": ("int4", None, None), "name": ("text", None, None), "big": ("text", None, None)}
    log = {"entry": ("text", None, None)}
    source.commit(source.schema(columns), source.insert(id=1, name="a", big="x"), at=at(1))
    source.commit(source.schema(log, (), "public.log"), source.insert("public.log", entry="old"), at=at(1))
    loaded(lake)
    source.commit(source.update(id=1, name="b", unchanged=["big"]), at=at(2))
    loaded(lake)
    # when it is wanted, of changes of the name alone
    lake = kept(lake, '[streams.bank.tables."public.accounts"]\ntrack_history_columns = ["name"]\n')
    loaded(lake)
    shown = ("id", "name", "big")
    assert versions(spark, lake, columns=shown) == [(J, 1, "a", "x", 1, 2), (J, 1, "b", "x", 2, None)]
    assert loaded(lake).load is None
    # and its row changes in what does not count, then in what does
    source.commit(source.update(id=1, name="b", big="y"), at=at(3))
    loaded(lake)
    assert versions(spark, lake, columns=shown) == [(J, 1, "a", "x", 1, 2), (J, 1, "b", "y", 2, None)]
    source.commit(source.update(id=1, name="c", unchanged=["big"]), at=at(4))
    # and the load dies before it is published, and is done again
    with dying_before_it_publishes(lake):
        loaded(lake)
    source.commit(source.delete(id=1), at=at(5))
    loaded(lake)
    # then
    assert versions(spark, lake, columns=shown) == [
        (J, 1, "a", "x", 1, 2),
        (J, 1, "b", "y", 2, 4),
        (J, 1, "c", "y", 4, 5),
    ]
    # and a table without a key is its own history
    assert published.latest(spark, lake, "bank").tables["public.log"].history is None
