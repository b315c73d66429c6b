"""Silver loaded again and side by side: what died, what was moved away, and loads at once double nothing."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from headrace.errors import ConfigurationError, Retryable
from spark_jobs import preflight
from spark_jobs.maintenance import replay
from spark_jobs.query import published_tables
from spark_jobs.silver import load as silver
from spark_jobs.silver import table_load, table_task
from spark_jobs.state import delta_log
from tests.lake.death import dying_before_it_publishes
from tests.lake.logged import LoggedLake
from tests.lake.reading import rows

J, ORDERS = "jakarta/bank", "public.orders"
#: Tables beside accounts and their log.
OTHERS = tuple(f"public.t{n}" for n in range(4))


@pytest.fixture(scope="module")
def loaded_bank(spark, tmp_path_factory):
    """Return a lake of a few tables."""
    lake = LoggedLake(spark, tmp_path_factory.mktemp("bank"))
    source, _ = lake.feeds
    source.commit(source.schema(), *(source.insert(id=i, name="a", balance="1.00") for i in (1, 2)))
    log = {"entry": ("text", None, None)}
    source.commit(source.schema(log, (), "public.log"), source.insert("public.log", entry="one"))
    for name in OTHERS:
        source.commit(source.schema(table=name), source.insert(name, id=1, name="a", balance="1.00"))
    lake.load()
    return lake


@pytest.fixture
def bank(loaded_bank, tmp_path):
    """Return a copy of that lake."""
    return loaded_bank.copy_to(tmp_path / "bank")


@pytest.mark.long
def test_load_that_died_before_publishing_is_done_again_without_harm(bank):
    # given a load whose tables are written and whose row is not
    source, _ = bank.feeds
    source.commit(source.delete(id=1), source.update(before={"id": 2}, id=3, name="b", balance="1.00"))
    source.commit(source.insert("public.log", entry="two"))
    with dying_before_it_publishes(bank.file):
        bank.load()
    # then nothing of it is seen
    assert bank.rows("id") == [(J, 1), (J, 2)]
    # when
    source.commit(source.insert(id=4, name="d", balance="1.00"), source.insert("public.log", entry="three"))
    bank.load()
    # then
    assert bank.rows("id") == [(J, 3), (J, 4)]
    assert bank.rows("entry", table="public.log") == [(J, "one"), (J, "three"), (J, "two")]


def test_positions_of_more_than_64_bits_follow_all_others(spark, bank):
    # given changes of a source that had narrower positions before
    source, _ = bank.feeds
    source.goes_on_at(1 << 64)
    first = source.commit(source.update(id=1, name="b", balance="2.00"))
    second = source.commit(source.delete(id=2))
    # then
    assert bank.load().problems == {}
    assert bank.rows("id", "name") == [(J, 1, "b")]
    # and silver can be done again from there
    assert replay.positions(spark, bank.file, "bank", f"{J}={second}") == {J: first}
    for wrong in (f"{J}={'x' * 34}", f"{J}={second[:-1]}", f"x={second}", second):
        with pytest.raises(ConfigurationError, match="is no position of a source"):
            replay.positions(spark, bank.file, "bank", wrong)


@pytest.mark.long
def test_table_whose_folder_was_moved_away_is_built_anew_from_bronze(spark, feed, lake_file, loaded):
    # given
    source = feed()
    lake = lake_file(bank=source.topic)
    source.commit(
        source.schema(), source.insert(id=1, name="a", balance="1.00"), source.insert(id=2, name="b", balance="1.00")
    )
    source.commit(source.delete(id=2))
    loaded(lake)
    before = rows(spark, lake)
    # when
    shutil.rmtree(table_task.path(lake, "bank", "public.accounts"))
    assert preflight.report(lake, "bank") is None
    loaded(lake)
    # then
    assert rows(spark, lake) == before == [(J, 1, "a", Decimal("1.00"))]


@pytest.mark.long
def test_two_streams_with_a_table_of_one_name_do_not_mix(spark, feed, lake_file, loaded):
    # given
    first, other = feed(), feed()
    lake = lake_file(bank=first.topic, shop=other.topic)
    first.commit(first.schema(), first.insert(id=1, name="bank", balance="1.00"))
    other.commit(other.schema(), other.insert(id=1, name="shop", balance="1.00"))
    # when
    loaded(lake)
    loaded(lake, "shop")
    # then
    assert rows(spark, lake, stream="bank")[0][2] == "bank"
    assert rows(spark, lake, stream="shop")[0][2] == "shop"
    names = {relation.name for relation in published_tables.relations(spark, lake) if relation.database == "silver"}
    # The first to be published keeps its name.
    assert names == {"accounts", "shop_accounts"}


# B16: what a MERGE notes of itself is a setting of its session, which tables that are written side by side must not share.
def test_tables_written_side_by_side_each_note_their_own_progress(spark, bank):
    # when
    source, _ = bank.feeds
    end = source.commit(*(source.update(name, id=1, name="b", balance="1.00") for name in OTHERS))
    bank.load()
    # then
    for name in OTHERS:
        _, note = delta_log.note(spark, table_task.path(bank.file, "bank", name), table_load.NOTE)
        assert (note["table"], note["load"], note["positions"]) == (name, 2, {J: end})


def test_two_loads_at_once_double_nothing(spark, bank):
    # given
    source, _ = bank.feeds
    source.commit(source.insert("public.log", entry="two"), source.update(id=1, name="b", balance="1.00"))
    bank.to_bronze()
    # when
    with ThreadPoolExecutor(2) as pool:
        loads = [pool.submit(silver.load, spark, bank.file, "bank") for _ in range(2)]
    failures = [error for load in loads if (error := load.exception())]
    # then each may have met the other, at one table or another; neither can have doubled anything
    assert all(isinstance(error, Retryable) for error in failures), failures
    bank.load()
    assert bank.rows("entry", table="public.log") == [(J, "one"), (J, "two")]
    assert bank.rows("id", "name") == [(J, 1, "b"), (J, 2, "a")]


@pytest.mark.long
def test_a_table_whose_replay_ended_between_two_commits_is_built_from_the_beginning(spark, logged_lake, monkeypatch):
    # given a table whose key changed, which takes two commits
    lake = logged_lake()
    source, other = lake.feeds
    columns = {"id": ("int8", None, None), "region": ("text", None, None)}
    for feed in lake.feeds:
        feed.commit(feed.schema(columns, ["id"], ORDERS), feed.insert(ORDERS, id=1, region="eu"))
    source.commit(source.schema(columns, ["id", "region"], ORDERS), source.insert(ORDERS, id=2, region="us"))
    other.commit(other.schema(columns, ["id", "region"], ORDERS), other.insert(ORDERS, id=2, region="us"))
    assert lake.load().problems == {}
    before = lake.rows("id", "region", table=ORDERS)
    # when a replay ends after the first
    write, calls = table_load._write, []

    def end_at_the_second(*given):
        calls.append(given)
        if len(calls) == 2:
            raise Retryable("ended")
        return write(*given)

    with monkeypatch.context() as patch:
        patch.setattr(table_load, "_write", end_at_the_second)
        with pytest.raises(Retryable, match="ended"):
            replay.of_silver(spark, lake.file, "bank")
    # then the next load has what the second one would have brought
    source.commit(source.insert(ORDERS, id=3, region="eu"))
    assert lake.load().problems == {}
    assert lake.rows("id", "region", table=ORDERS) == sorted([*before, (J, 3, "eu")])
