"""A load of silver that is not alone: another load, or somebody else's commit, in between at each of its steps (L4)."""

import pytest

from headrace.errors import Retryable
from spark_jobs.bronze import load as bronze
from spark_jobs.query import published_tables
from spark_jobs.silver import commit, table_load
from spark_jobs.silver import load as silver
from spark_jobs.silver import merge as write
from spark_jobs.state import published
from tests.lake_reading import rows

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

LOG = {"entry": ("text", None, None)}
#: What a load calls at each step: before a table is written, in its commit, after it, and before it publishes.
STEPS = [
    (write, "create"),
    (table_load, "formed"),
    (write, "append"),
    (write, "merge"),
    (commit, "made"),
    (published, "append"),
]


def once(monkeypatch, module, name, action):
    """Let an action happen before the next call of a function, and never again."""
    function = getattr(module, name)

    def interrupted(*args, **kwargs):
        monkeypatch.setattr(module, name, function)
        action()
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, interrupted)


def test_l4_load_that_was_overtaken_publishes_nothing_and_doubles_nothing(spark, feed, lake_file, monkeypatch):
    # given a table with a key, and one without
    source = feed()
    lake = lake_file(bank=source.topic)
    entries = []

    def change():
        entry = str(len(entries))
        entries.append(entry)
        # One row comes, one changes each time, and one is there between two loads alone.
        number = len(entries)
        source.commit(
            source.insert("public.log", entry=entry),
            source.insert(id=number, name=entry, balance="1.00"),
            source.update(id=1, name=entry, balance="1.00"),
            *([source.delete(id=number - 1)] if number > 2 else []),
        )
        bronze.load(spark, lake, "bank")

    def another_load():
        change()
        assert silver.load(spark, lake, "bank").load is not None

    def somebody_else():
        path = table_load.path(lake, "bank", "public.accounts")
        spark.newSession().sql(f"UPDATE delta.`{path}` SET balance = balance WHERE id = 1")

    def check():
        log = published_tables.frame(spark, lake, "bank", "public.log").collect()
        assert sorted(int(row["entry"]) for row in log) == list(range(len(entries)))
        known = {row[1]: row[2] for row in rows(spark, lake)}
        assert known == {1: entries[-1], len(entries): entries[-1]}

    source.commit(source.schema(), source.schema(LOG, (), "public.log"))
    for module, name in STEPS:
        # when another load, which has read more, does all that it does at this step
        change()
        once(monkeypatch, module, name, another_load)
        before = published.latest(spark, lake, "bank").load
        with pytest.raises(Retryable):
            silver.load(spark, lake, "bank", side_by_side=1)
        # then what the other one published stays, and nothing is there twice
        assert published.latest(spark, lake, "bank").load == before + 1, name
        check()
    # when somebody else commits after the load has read the table
    change()
    once(monkeypatch, write, "merge", somebody_else)
    before = published.latest(spark, lake, "bank")
    with pytest.raises(Retryable, match=r"public\.accounts: version \d+ was made by somebody else"):
        silver.load(spark, lake, "bank")
    # then nothing is published, and the next load publishes
    assert published.latest(spark, lake, "bank") == before
    silver.load(spark, lake, "bank")
    check()
