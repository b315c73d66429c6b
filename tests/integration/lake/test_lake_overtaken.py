"""A load of silver that is not alone: another load, or somebody else's commit, in between at each of its steps (L4)."""

import pytest

from headrace.errors import Retryable
from spark_jobs.maintenance import replay
from spark_jobs.silver import commit, table_task
from spark_jobs.silver import load as silver
from spark_jobs.silver import merge as write
from spark_jobs.state import publication, published

#: Several loads, each with its Spark jobs: minutes on a machine that is busy with others.
pytestmark = pytest.mark.timeout(1500)

LOG = {"entry": ("text", None, None)}
#: What a load calls at each step: before a table is written, in its commit, after it, and before it publishes.
STEPS = [
    (write, "create"),
    (table_task, "target_of"),
    (write, "append"),
    (write, "merge"),
    (commit, "find_own_version"),
    (publication, "append"),
]


def once(monkeypatch, module, name, action):
    """Let an action happen before the next call of a function, and never again."""
    function = getattr(module, name)

    def interrupted(*args, **kwargs):
        monkeypatch.setattr(module, name, function)
        action()
        return function(*args, **kwargs)

    monkeypatch.setattr(module, name, interrupted)


@pytest.mark.long
def test_l4_load_that_was_overtaken_publishes_nothing_and_doubles_nothing(spark, logged_lake, monkeypatch):
    # given a table with a key, and one without
    lake = logged_lake()
    source, _ = lake.feeds
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
        lake.to_bronze()

    def another_load():
        change()
        assert lake.load().load is not None

    def somebody_else():
        path = table_task.path(lake.file, "bank", "public.accounts")
        spark.newSession().sql(f"UPDATE delta.`{path}` SET balance = balance WHERE id = 1")

    def latest():
        return published.latest(spark, lake.file, "bank")

    source.commit(source.schema(), source.schema(LOG, (), "public.log"))
    for module, name in STEPS:
        # when another load, which has read more, does all that it does at this step
        change()
        once(monkeypatch, module, name, another_load)
        before = latest().load
        with pytest.raises(Retryable):
            silver.load(spark, lake.file, "bank", side_by_side=1)
        # then what the other one published stays
        assert latest().load == before + 1, name
    # when somebody else commits after the load has read the table
    change()
    once(monkeypatch, write, "merge", somebody_else)
    before = latest()
    with pytest.raises(Retryable, match=r"public\.accounts: version \d+ was made by somebody else"):
        lake.load()
    # then nothing is published, and that table stops until it is built again
    assert latest() == before
    assert list(lake.load().problems) == ["public.accounts"]
    assert replay.of_silver(spark, lake.file, "bank").problems == {}
    # and nothing is there twice of any of these, which a row of a table without a key would be for good
    assert sorted(int(entry) for _, entry in lake.rows("entry", table="public.log")) == list(range(len(entries)))
    assert {number: name for _, number, name in lake.rows("id", "name")} == {1: entries[-1], len(entries): entries[-1]}
