"""S18: a person's row is erased from the whole lake by its key, whatever kills the erasure and whatever runs beside it."""

import json
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner

from headrace.errors import ConfigurationError, NeedsOperator, Retryable
from spark_jobs import removal_command
from spark_jobs.bronze import erased_records, erasures, increment, sink
from spark_jobs.bronze import load as bronze
from spark_jobs.maintenance import drop, erase, maintain, related_rows, replay
from spark_jobs.maintenance.erased_rows import choose_rows
from spark_jobs.silver import load as silver
from spark_jobs.silver import rebuild, tables_load
from spark_jobs.state import delta_log, offsets, published
from tests.lake import erasing
from tests.lake.age import age
from tests.lake.erasing import (
    ACCOUNTS,
    FORMER,
    NAME,
    J,
    KilledError,
    L,
    add_tombstone,
    files_with,
    history_of,
    keep_in_quarantine,
    run,
)

pytestmark = pytest.mark.timeout(1500)

#: The steps of an erasure, each of which may be its last one.
STEPS = (
    (erased_records, "empty"),
    *((erase, name) for name in ("_erase_table", "_erase_published", "_erase_former", "_empty_quarantine")),
)


@pytest.fixture(scope="module")
def loaded_lake(spark, tmp_path_factory):
    return erasing.make(spark, tmp_path_factory.mktemp("erase") / "lake")


@pytest.fixture
def lake(loaded_lake, tmp_path):
    return loaded_lake.copy_to(tmp_path / "lake")


@pytest.mark.parametrize("steps", [STEPS[-1:], pytest.param(STEPS, marks=pytest.mark.long)], ids=["one", "all"])
def test_s18_an_erased_row_is_in_no_file_once_maintenance_has_removed_old_ones(lake, monkeypatch, steps):
    # given former rows, and a quarantined record
    former = rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS).former
    keep_in_quarantine(lake, '{"id":7}', f'{{"after":{{"name":"{NAME}"}}}}')
    places = {name.partition("/")[0] for name in files_with(lake, NAME)}
    assert places == {"bronze", "silver", "history", "former", "quarantine"}
    # a dry run counts and changes nothing
    counted = run(lake, "7", dry_run=True).counts
    assert counted == {"bronze": 2, "silver": 1, "history": 2, "former": 3, "quarantine": 1}
    # when it is killed behind its steps, and run again each time
    for module, step in steps:
        done = getattr(module, step)

        def killed(*given, _done=done, **options):
            _done(*given, **options)
            raise KilledError

        with monkeypatch.context() as patch:
            patch.setattr(module, step, killed)
            with pytest.raises(KilledError):
                run(lake, "7")
    report = run(lake, "7")
    # then others are there, and readers have nothing of it
    assert report.counts == {"bronze": 0, "silver": 0, "history": 0, "former": 0, "quarantine": 0}
    assert report.not_reached == list(erase.ELSEWHERE)
    assert lake.rows("id", "name") == [(J, 1, "kept"), (L, 7, "another person")]
    assert history_of(lake, f"name IN ('{NAME}', '{FORMER}')") == 0
    assert history_of(lake, "id = 7") == 1
    assert lake.spark.read.format("delta").load(former).count() == 2
    # what is recorded has no value
    record = lake.spark.read.format("delta").load(erasures.path(lake.file)).filter("step = 'begun'").collect()
    assert {row["reason"] for row in record} == {"request 12"}
    assert NAME not in str(record)
    # and loads go on; days later nothing of it is in any file
    feed = lake.feeds[0]
    feed.commit(feed.insert(id=2, name="new", balance="1"))
    assert lake.load().problems == {}
    assert files_with(lake, NAME, FORMER)
    age(lake.spark, lake.file, 30)
    maintain.maintain(lake.spark, lake.file, "bank")
    # Delta's own commits have the least and greatest values of files, and stay longer (docs/privacy.md)
    assert [name for name in files_with(lake, NAME, FORMER) if "/_delta_log/" not in name] == []
    assert lake.rows("id", "name") == [(J, 1, "kept"), (J, 2, "new"), (L, 7, "another person")]


@pytest.mark.long
def test_s18_an_erasure_keeps_the_note_by_which_loads_go_on(lake):
    path = bronze.table_path(lake.file, "bank")
    # given nothing that came for days: Delta may remove the note's commit with any commit that follows
    age(lake.spark, lake.file, 5)
    assert sink.is_old(delta_log.noted_at(lake.spark, path, offsets.NOTE))
    # when
    run(lake, "7")
    # then the note was written again, ahead of what was erased
    assert not sink.is_old(delta_log.noted_at(lake.spark, path, offsets.NOTE))
    assert delta_log.note(lake.spark, path, offsets.NOTE)[0] < delta_log.note(lake.spark, path, increment.ERASED)[0]
    # and ahead of what maintenance removes
    age(lake.spark, lake.file, 5)
    erase.vacuum(lake.spark.newSession(), lake.file, "bank")
    assert not sink.is_old(delta_log.noted_at(lake.spark, path, offsets.NOTE))


@pytest.mark.long
def test_s18_replays_and_rebuilds_keep_a_row_erased_until_its_source_sends_it_again(lake):
    feed = lake.feeds[0]
    states = lake.spark.read.format("delta").load(published.path(lake.file)).filter("`table` IS NULL").orderBy("load")
    first, last = (row["positions"] for row in states.collect())
    # given a change that no load has applied, the last one of its transaction
    feed.commit(feed.insert(id=3, name="next", balance="1"), feed.update(id=7, name=FORMER, balance="5"))
    lake.to_bronze()
    assert run(lake, "7").counts["bronze"] == 3
    assert lake.load().problems == {}
    others = [(J, 1, "kept"), (J, 3, "next"), (L, 7, "another person")]
    assert lake.rows("id", "name") == others
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id", "name") == others
    rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
    assert lake.rows("id", "name") == others
    # what comes to bronze again from Kafka is emptied, what came later is not
    rows = lake.spark.sql(
        f"""SELECT '{J}' AS source, '{ACCOUNTS}' AS `table`, '{{"id":7}}' AS key, position, 'v' AS value, 'u' AS op,
        false AS partial, false AS rekeyed FROM VALUES ('00000000'), ('ffffffff') AS t(position)"""
    )
    values = {row["position"]: row["value"] for row in erasures.emptied(lake.spark, lake.file, "bank", rows).collect()}
    assert values == {"00000000": None, "ffffffff": "v"}
    # from what was published before the erasure nothing is done again
    with pytest.raises(NeedsOperator, match=r"rows of public\.accounts were erased after what was"):
        replay.of_silver(lake.spark, lake.file, "bank", first)
    assert lake.rows("id", "name") == others
    # but from what the erasure itself published
    assert replay.of_silver(lake.spark, lake.file, "bank", last).problems == {}
    assert lake.rows("id", "name") == others
    feed.commit(feed.insert(id=7, name="came back", balance="5"))
    assert lake.load().problems == {}
    assert (J, 7, "came back") in lake.rows("id", "name")


@pytest.mark.long
def test_s18_a_load_that_read_bronze_before_an_erasure_does_not_bring_the_row_back(lake, monkeypatch):
    feed = lake.feeds[0]
    feed.commit(feed.update(id=7, name=NAME, balance="6"), feed.insert(id=3, name="next", balance="1"))
    lake.to_bronze()
    run_tables = tables_load.run

    def late(*given, **options):
        # bronze is read, no table is written yet
        run(lake, "7")
        return run_tables(*given, **options)

    with monkeypatch.context() as patch:
        patch.setattr(tables_load, "run", late)
        with pytest.raises(Retryable, match="rows were erased from it since"):
            silver.load(lake.spark, lake.file, "bank")
    assert silver.load(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id", "name") == [(J, 1, "kept"), (J, 3, "next"), (L, 7, "another person")]


@pytest.mark.long
def test_s18_a_rebuild_that_an_erasure_came_before_leaves_no_former_rows(lake, monkeypatch):
    keep = rebuild._keep

    def late(*given):
        # what is published is read, nothing of it is copied yet
        run(lake, "7")
        monkeypatch.setattr(rebuild, "_keep", keep)
        return keep(*given)

    monkeypatch.setattr(rebuild, "_keep", late)
    with pytest.raises(Retryable, match="rows were erased from it since"):
        rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS)
    assert [name for name in files_with(lake, NAME, FORMER) if name.startswith("former/")] == []
    kept = rebuild.rebuild(lake.spark, lake.file, "bank", ACCOUNTS).former
    assert lake.spark.read.format("delta").load(kept).count() == 2
    assert lake.rows("id", "name") == [(J, 1, "kept"), (L, 7, "another person")]


@pytest.mark.long
def test_s18_keys_that_are_none_and_rows_that_had_other_keys_are_refused_before_anything_is_erased(lake):
    feed = lake.feeds[0]
    feed.commit(feed.update(id=8, name=NAME, balance="4", before={"id": 7}))
    lake.load()
    with pytest.raises(ConfigurationError, match="1 of the keys given are none"):
        run(lake, "7", "seven")
    with pytest.raises(NeedsOperator, match=r"no table public\.none"):
        erase.erase(lake.spark, lake.file, "bank", "public.none", ["7"])
    assert run(lake, "7", dry_run=True).other_keys == ['["8"]']
    with pytest.raises(NeedsOperator, match=r"had 1 other key\(s\)"):
        run(lake, "7")
    assert (J, 8, NAME) in lake.rows("id", "name")
    assert run(lake, "7", "8").counts["bronze"] == 3
    assert lake.rows("id", "name") == [(J, 1, "kept"), (L, 7, "another person")]


@pytest.mark.long
def test_s18_tombstones_have_no_key_left_and_a_table_that_is_taken_back_has_no_erased_row(lake):
    feed = lake.feeds[0]
    # given a tombstone, and a table that is dropped
    feed.commit(feed.insert(id=3, name="next", balance="1"))
    topic, partition, _, at, _, value = feed.waiting[-1]
    add_tombstone(feed)
    lake.to_bronze()
    drop.drop(lake.spark, lake.file, "bank", ACCOUNTS)
    # when
    report = run(lake, "7")
    # then
    assert report.not_reached == list(erase.ELSEWHERE)
    raw = lake.spark.read.format("delta").load(bronze.table_path(lake.file, "bank"))
    assert [row["key"] for row in raw.filter("value IS NULL AND op IS NULL").collect()] == [None]
    drop.undo(lake.spark, lake.file, "bank", ACCOUNTS)
    assert lake.load().problems == {}
    assert lake.rows("id", "name") == [(J, 1, "kept"), (J, 3, "next"), (L, 7, "another person")]
    # and records from when the table had another key are not found, and reported
    feed.waiting.append((topic, partition, feed.offset, at, b'{"name":"next"}', value))
    lake.to_bronze()
    assert any("another key or none" in place for place in run(lake, "7", dry_run=True).not_reached)


@pytest.mark.long
def test_s18_rows_that_name_the_row_are_found_as_they_are_and_were_and_have_keys_of_their_own(lake, monkeypatch):
    one, other = lake.feeds
    columns = {"id": ("int8", None, None), "line": ("int4", None, None), "account": ("int8", None, None)}
    columns |= {"day": ("date", None, None)}
    one.commit(one.insert(id=9, name="next", balance="7.50"))
    rows = {one: ((1, 1, 7), (1, 2, 7), (2, 1, 1), (3, 1, 77)), other: ((1, 1, 7), (2, 1, 7), (3, 1, 1))}
    for feed in lake.feeds:
        feed.commit(feed.schema(columns, ("id", "line"), "public.orders"))
        feed.commit(*(feed.insert("public.orders", id=i, line=n, account=account) for i, n, account in rows[feed]))
    topic, partition, _, at, _, value = one.waiting[-2]
    lake.load()
    one.commit(one.update("public.orders", id=1, line=2, account=1), one.delete("public.orders", id=1, line=1))
    lake.load()
    orders = "public.orders.account"

    def erase_7(*options: str) -> dict[str, Any]:
        words = ["bank", ACCOUNTS, "07", "--related", orders, *options, "--config", str(lake.file.path), "--json"]
        done = CliRunner().invoke(removal_command.erase, words)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return json.loads(done.output)

    def find(path: str, keys: list[str], table: str = ACCOUNTS) -> tuple[str, dict[str, list[str]]]:
        target = choose_rows(lake.spark, lake.file, "bank", table, keys, [])
        return related_rows.find_keys(lake.spark, lake.file, "bank", path, target)

    # then keys are compared as values, and each source has rows of its own
    expected = {J: ['["1","1"]', '["1","2"]'], L: ['["1","1"]', '["2","1"]']}
    assert find(orders, ["07", "8"]) == ("public.orders", expected)
    with pytest.raises(ConfigurationError, match="no column owner"):
        find("public.orders.owner", ["7"])
    with pytest.raises(ConfigurationError, match="is named by 2 columns"):
        find("public.accounts.id", ['["1","1"]'], "public.orders")
    assert find("public.accounts.balance", ["4"]) == (ACCOUNTS, {J: ["7"]})
    assert find("public.accounts.balance", ["7"]) == (ACCOUNTS, {})
    with pytest.raises(ConfigurationError, match="day is date, which is never equal to a key that is bigint"):
        find("public.orders.day", ["7"])
    # a key that is refused is refused before any row is erased that names it
    one.commit(one.update(id=8, name=NAME, balance="4", before={"id": 7}))
    lake.load()
    rows_before = lake.rows("id", "line", table="public.orders")
    with pytest.raises(NeedsOperator, match=r"had 1 other key\(s\)"):
        erase_7("--reason", "request 12")
    assert lake.rows("id", "line", table="public.orders") == rows_before
    # when it is killed ahead of what rebuilds and quarantine kept, and run again
    rebuild.rebuild(lake.spark, lake.file, "bank", "public.orders")
    with monkeypatch.context() as patch:
        patch.setattr(erase, "_erase_former", Mock(side_effect=KilledError))
        with pytest.raises(KilledError):
            erase_7("8", "--reason", "request 12")
    report = erase_7("8", "--reason", "request 12")
    # then
    assert (report["table"], report["counts"]["silver"]) == (ACCOUNTS, 2)
    related = [(each["table"], each["keys"], each["counts"]["silver"]) for each in report["related"]]
    # of what rebuilds kept, history with it, rows that name it or did
    assert related == [("public.orders", 4, 0)]
    assert report["related"][0]["counts"]["former"] > 0
    assert find(orders, ["07", "8"]) == ("public.orders", {})
    left = [(J, 2, 1), (J, 3, 1), (L, 3, 1)]
    assert lake.rows("id", "line", table="public.orders") == left
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    assert lake.rows("id", "line", table="public.orders") == left
    # and records of when the table had another key are passed over
    one.waiting.append((topic, partition, one.offset, at, b'{"name":"next"}', value))
    lake.to_bronze()
    assert find(orders, ["77"]) == ("public.orders", {J: ['["3","1"]']})
