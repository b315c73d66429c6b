"""A table that was renamed at its source and copied by its new name: its history by both names is shown as one (issue 32)."""

import json
from datetime import datetime, timedelta

import pytest
from click.testing import CliRunner

from headrace.errors import ConfigurationError, NeedsOperator
from headrace.lake.lake import Lake
from spark_jobs import removal_command
from spark_jobs.bronze import erased_records
from spark_jobs.maintenance import drop, erase, maintain, related_rows, rename, replay
from spark_jobs.query import published_tables
from spark_jobs.query.engine import SqlEngine
from spark_jobs.serve import publication as served
from spark_jobs.state import delta_log, publication, published
from tests.lake.death import count_commits, killed_when
from tests.lake.logged import LoggedLake

pytestmark = pytest.mark.timeout(900)

ACCOUNTS, CLIENTS, USERS = "public.accounts", "public.clients", "public.users"
J, L = "jakarta/bank", "london/bank"
NAME = "Amelia-Quillfeather"
COLUMNS = {"id": ("int4", None, None), "name": ("text", None, None), "note": ("text", None, None)}
WITHOUT_NOTE = {"id": ("int8", None, None), "name": ("text", None, None)}


def at(hour):
    return 1769850000000 + hour * 3_600_000


def copied(feed, table, hour, *rows, columns=WITHOUT_NOTE):
    """Commit a copy of a table by a name, and what a copy is said by."""
    feed.commit(feed.schema(columns, table=table), feed.copy_begins(columns, table=table), at=at(hour))
    feed.commit(*(feed.read(table, **row) for row in rows), at=at(hour))
    feed.commit(feed.copy_ends(columns, table=table), at=at(hour))


@pytest.fixture(scope="module")
def loaded_lake(spark, tmp_path_factory):
    """Return a lake in which one source has renamed a table: a row changed, one deleted before the copy, and one since."""
    lake = LoggedLake(spark, tmp_path_factory.mktemp("rename"), "history = true\n", [J])
    (feed,) = lake.feeds
    rows = [feed.insert(id=n, name=f"n{n}", note="x") for n in (1, 2, 3)]
    feed.commit(feed.schema(COLUMNS), *rows, feed.insert(id=7, name=NAME, note="x"), at=at(1))
    feed.commit(feed.update(id=1, name="a", note="x"), at=at(2))
    lake.load()
    feed.commit(feed.schema(WITHOUT_NOTE, table=CLIENTS), feed.update(CLIENTS, id=3, name="c"), at=at(3))
    copied(feed, CLIENTS, 4, {"id": 1, "name": "a"}, {"id": 3, "name": "c"}, {"id": 7, "name": NAME})
    feed.commit(feed.update(CLIENTS, id=1, name="b"), at=at(5))
    assert lake.load().problems == {}
    return lake


@pytest.fixture
def lake(loaded_lake, tmp_path):
    return loaded_lake.copy_to(tmp_path / "lake")


def ask(lake, query):
    """Return the answer of a new session, as a user has it."""
    engine = SqlEngine(lake.spark.newSession(), lake.file)
    try:
        return sorted(map(tuple, engine.ask(query).collect()), key=str)
    finally:
        engine.close()


def versions(lake, table="full_history.clients", condition="true"):
    ends = [f"int(timestampdiff(HOUR, timestamp_millis({at(0)}), {end}))" for end in ("__START_AT", "__END_AT")]
    return ask(lake, f"SELECT id, name, {', '.join(ends)} FROM {table} WHERE {condition}")


OF_CLIENTS = [(1, "a", 4, 5), (1, "b", 5, None), (3, "c", 3, None), (7, NAME, 4, None)]
OF_ACCOUNTS = [(1, "a", 2, None), (1, "n1", 1, 2), (2, "n2", 1, None), (3, "n3", 1, None), (7, NAME, 1, None)]
#: A row that was deleted between the rename and the copy ends where its source begins by the new name.
OF_BOTH = sorted([*OF_CLIENTS, (1, "a", 2, 4), (1, "n1", 1, 2), (2, "n2", 1, 3), (3, "n3", 1, 3), (7, NAME, 1, 4)])


def renamed(lake, former=ACCOUNTS, table=CLIENTS, **options):
    return rename.rename(lake.spark, lake.file, "bank", former, table, **options)


def names(lake):
    relations = published_tables.relations(lake.spark, lake.file)
    return {
        each.full_name.replace("`", "") for each in relations if each.database not in {"lake", "headrace", "bronze"}
    }


def test_versions_by_a_former_name_are_shown_with_those_of_the_present_one_until_that_is_taken_back(lake):
    (feed,) = lake.feeds
    # a dry run changes nothing
    before = names(lake)
    assert renamed(lake, dry_run=True).load is None
    assert names(lake) == before
    # when
    done = renamed(lake)
    # then, also as another process reads it
    published._read.clear()
    assert (done.done, done.name, done.misfits, done.ended) == ("renamed", "full_history.clients", [], {J: 1})
    assert names(lake) == {"silver.clients", "history.clients", "history.accounts", "full_history.clients"}
    assert versions(lake) == OF_BOTH
    assert versions(lake, condition="id = 2") == [(2, "n2", 1, 3)]
    assert versions(lake, "history.accounts") == sorted(OF_ACCOUNTS, key=str)
    # with columns that the former name alone had, and positions that fit the times
    kinds = ask(lake, "SELECT DISTINCT typeof(id), note FROM full_history.clients")
    assert kinds == [("bigint", "x"), ("bigint", None)]
    assert ask(
        lake, "SELECT count(*) FROM full_history.clients WHERE (__END_AT IS NULL) <> (_end_position IS NULL)"
    ) == [(0,)]
    assert renamed(lake).done == "nothing"
    (listed,) = published_tables.list_tables(lake.spark, lake.file, ["bank"], rows=False)
    assert (listed.table, listed.former_names) == (CLIENTS, [ACCOUNTS])
    # other tools have both histories
    reader = Lake(str(lake.file.root))
    assert [name for name in reader.names() if name.startswith(("silver", "history"))] == [
        "history.accounts",
        "history.clients",
        "silver.clients",
    ]
    assert reader.table("history.accounts").to_arrow().num_rows == 5
    # loads go on, replays and maintenance keep it; records by the former name are passed over
    feed.commit(feed.update(CLIENTS, id=3, name="d"), feed.insert(ACCOUNTS, id=9, name="other", note="y"), at=at(6))
    feed.commit(feed.insert(CLIENTS, id=2, name="again"), at=at(7))
    assert lake.load().problems == {}
    later = {(3, "c", 3, None): (3, "c", 3, 6)}
    whole = sorted([*(later.get(row, row) for row in OF_BOTH), (3, "d", 6, None), (2, "again", 7, None)], key=str)
    assert versions(lake) == whole
    assert replay.of_silver(lake.spark, lake.file, "bank").problems == {}
    maintain.maintain(lake.spark, lake.file, "bank")
    assert versions(lake) == whole
    # taken back, both are as they were, and what came meanwhile by the former name is there
    assert drop.undo(lake.spark, lake.file, "bank", ACCOUNTS).done == "taken back"
    assert "full_history.clients" not in names(lake)
    with pytest.raises(NeedsOperator, match="is behind its stream"):
        renamed(lake)
    assert lake.load().problems == {}
    assert versions(lake, "history.accounts") == sorted([*OF_ACCOUNTS, (9, "other", 6, None)], key=str)


@pytest.mark.long
def test_what_the_server_shows_reads_tables_by_their_names_and_the_past_as_it_was(lake):
    first = published.latest(lake.spark, lake.file, "bank").finished_at
    renamed(lake)
    relations = {f"{each.database}.{each.name}": each for each in served.newest(lake.spark, lake.file)}
    query = relations["full_history.clients"].sql()
    assert "history.`accounts`" in query
    assert str(lake.file.root) not in query
    listing = served.Listing(lake.spark.newSession())
    listing.begin()
    listing.keep(list(relations.values()), served.columns(lake.spark, lake.file))
    counted = listing.spark.sql("SELECT count(*), count(__END_AT) FROM full_history.clients").first()
    assert tuple(counted) == (len(OF_BOTH), 6)
    shown = relations["history.accounts"].version
    erase_key(lake, ACCOUNTS, "7")
    past = {
        f"{each.database}.{each.name}": each for each in served.of_the_past(lake.spark, lake.file, first.isoformat())
    }
    assert past["history.accounts"].version == shown
    now = {f"{each.database}.{each.name}": each for each in served.newest(lake.spark, lake.file)}
    assert now["history.accounts"].version > shown


def erase_key(lake, table, key, *related):
    reports, _ = related_rows.erase_all(
        lake.spark, lake.file, "bank", (table, [key]), related, sources=[], reason="request", dry_run=False
    )
    return {report.table: report.counts for report in reports}


def test_a_person_is_erased_by_all_names_of_a_table_and_stays_so_when_a_rename_is_taken_back(lake, monkeypatch):
    (feed,) = lake.feeds
    renamed(lake)
    append, loaded = publication.append, []

    def after_a_load(spark, file, done, **options):
        # A load has published while the erasure went through the former name.
        if not loaded and options.get("maintenance"):
            loaded.append(done.stream)
            feed.commit(feed.update(CLIENTS, id=3, name="d"), at=at(6))
            monkeypatch.setattr(publication, "append", append)
            lake.load()
        return append(spark, file, done, **options)

    monkeypatch.setattr(publication, "append", after_a_load)
    counts = erase_key(lake, CLIENTS, "7")
    assert loaded
    assert {name: count["history"] for name, count in counts.items()} == {ACCOUNTS: 1, CLIENTS: 1}
    published._read.clear()
    assert versions(lake, condition="id = 7") == []
    assert len(versions(lake)) == len(OF_BOTH) - 2 + 1
    rows = lake.spark.read.format("delta").load(f"{lake.file.root}/bronze/bank")
    assert rows.filter(f"value LIKE '%{NAME}%'").count() == 0
    # a key that the former name cannot have is none of its rows; of the given table it is an error
    assert sorted(erase_key(lake, CLIENTS, "3000000000")) == [ACCOUNTS, CLIENTS]
    with pytest.raises(ConfigurationError, match=f"none of {ACCOUNTS}"):
        erase_key(lake, ACCOUNTS, "3000000000")
    # what is left is in files that maintenance removes
    erase.vacuum(erased_records.session_for(lake.spark), lake.file, "bank")
    drop.undo(lake.spark, lake.file, "bank", ACCOUNTS)
    assert lake.load().problems == {}
    assert versions(lake, "history.accounts", "id = 7") == []
    assert ask(lake, "SELECT id FROM silver.accounts WHERE id = 7") == []
    assert len(versions(lake, "history.accounts")) == 4


@pytest.mark.long
def test_a_table_renamed_twice_has_the_versions_by_all_its_names(lake):
    (feed,) = lake.feeds
    renamed(lake)
    copied(feed, USERS, 8, {"id": 1, "name": "b"}, {"id": 3, "name": "c"})
    assert lake.load().problems == {}
    renamed(lake, CLIENTS, USERS)
    ended = [(i, name, begin, 8 if end is None else end) for i, name, begin, end in OF_BOTH]
    assert versions(lake, "full_history.users") == sorted([*ended, (1, "b", 8, None), (3, "c", 8, None)], key=str)
    state = published.latest(lake.spark, lake.file, "bank")
    assert (state.former_names(USERS), state.other_names(CLIENTS)) == ([CLIENTS, ACCOUNTS], [USERS, ACCOUNTS])
    # a name with a former one is not dropped ahead of that
    for name in (CLIENTS, USERS):
        with pytest.raises(NeedsOperator, match=f"had the name {ACCOUNTS}"):
            drop.drop(lake.spark, lake.file, "bank", name)
    # the later name taken back is as it was; the first one is dropped for good
    drop.undo(lake.spark, lake.file, "bank", CLIENTS)
    assert versions(lake) == OF_BOTH
    assert drop.drop(lake.spark, lake.file, "bank", ACCOUNTS, dry_run=True).done == "dropped"
    assert drop.drop(lake.spark, lake.file, "bank", ACCOUNTS).done == "dropped"
    assert names(lake) == {"silver.clients", "silver.users", "history.clients", "history.users"}


@pytest.mark.long
def test_what_is_not_the_same_table_is_refused_and_nothing_changes(lake):
    (feed,) = lake.feeds
    feed.commit(feed.schema(WITHOUT_NOTE, ("id", "name"), USERS), feed.insert(USERS, id=1, name="n"), at=at(8))
    assert lake.load().problems == {}
    before = published.latest(lake.spark, lake.file, "bank").load
    for former, table, why in (
        ("public.none", CLIENTS, "no table public.none"),
        (CLIENTS, CLIENTS, "has that name already"),
        (ACCOUNTS, USERS, "keys of other columns"),
        (CLIENTS, ACCOUNTS, "two tables"),
    ):
        with pytest.raises(NeedsOperator, match=why):
            renamed(lake, former, table)
    assert published.latest(lake.spark, lake.file, "bank").load == before
    # nor one that has a former name, nor one whose history is not kept
    renamed(lake)
    copied(feed, USERS, 9, {"id": 1, "name": "b"})
    with pytest.raises(NeedsOperator, match="has the former name"):
        renamed(lake, USERS, CLIENTS)
    lake.set(f'history = true\n[streams.bank.tables."{CLIENTS}"]\nhistory = false\n')
    drop.undo(lake.spark, lake.file, "bank", ACCOUNTS)
    feed.commit(feed.update(CLIENTS, id=3, name="d"), at=at(9))
    lake.load()
    with pytest.raises(NeedsOperator, match="keeps no history"):
        renamed(lake)


def test_a_source_that_has_not_renamed_its_table_keeps_it(spark, tmp_path):
    lake = LoggedLake(spark, tmp_path / "two", "history = true\n")
    for feed in lake.feeds:
        feed.commit(feed.schema(WITHOUT_NOTE), feed.insert(id=1, name="n"), at=at(1))
    copied(lake.feeds[0], CLIENTS, 2, {"id": 1, "name": "n"})
    assert lake.load().problems == {}
    with pytest.raises(NeedsOperator, match=f"{L} has not sent {CLIENTS} yet"):
        renamed(lake)
    # nor one of which no row by the new name was ever there
    lake.feeds[1].commit(lake.feeds[1].schema(WITHOUT_NOTE, table=CLIENTS), at=at(2))
    lake.feeds[1].commit(lake.feeds[1].delete(CLIENTS, id=2), at=at(2))
    assert lake.load().problems == {}
    with pytest.raises(NeedsOperator, match=f"{L} has sent no row of {CLIENTS}"):
        renamed(lake)
    copied(lake.feeds[1], CLIENTS, 3, {"id": 1, "name": "n"})
    assert lake.load().problems == {}
    words = ["bank", ACCOUNTS, CLIENTS, "--config", str(lake.file.path), "--json"]
    done = CliRunner().invoke(removal_command.rename, words)
    assert json.loads(done.output)["done"] == "renamed"
    assert versions(lake, condition="__END_AT IS NOT NULL") == [(1, "n", 1, 2), (1, "n", 1, 3)]


PURCHASES, ORDERS = "public.purchases", "public.orders"
OF_PURCHASES = {"tenant": ("text", None, None), "id": ("int4", None, None), "client": ("int8", None, None)}
OF_ORDERS = {name: OF_PURCHASES[name] for name in ("id", "tenant", "client")}


def test_keys_of_several_columns_in_another_order_misfits_new_columns_and_rows_that_name_a_person(lake):
    (feed,) = lake.feeds
    feed.commit(feed.schema(OF_PURCHASES | {"amount": ("int4", None, None)}, ("tenant", "id"), PURCHASES), at=at(6))
    rows = [{"tenant": "t", "id": number, "client": client} for number, client in ((1, 7), (2, 1), (7, 1))]
    feed.commit(*(feed.insert(PURCHASES, **row, amount=5) for row in rows), at=at(6))
    # the first one is another client's by the new name
    columns = OF_ORDERS | {"amount": ("text", None, None)}
    feed.commit(feed.schema(columns, ("id", "tenant"), ORDERS), at=at(7))
    feed.commit(*(feed.insert(ORDERS, **row | {"client": 1}, amount="5") for row in rows), at=at(7))
    assert lake.load().problems == {}
    assert renamed(lake, PURCHASES, ORDERS).misfits == ["amount"]
    query = "SELECT id, client, amount, __END_AT IS NULL FROM full_history.orders"
    now, then = [(n, 1, "5", True) for n in (1, 2, 7)], [(n, c, None, False) for n, c in ((1, 7), (2, 1), (7, 1))]
    assert ask(lake, query) == sorted([*now, *then], key=str)
    # a column that comes first in a schema, and in a row later
    feed.commit(feed.schema(columns | {"place": ("text", None, None)}, ("id", "tenant"), ORDERS), at=at(8))
    lake.load()
    ask(lake, query)
    feed.commit(feed.insert(ORDERS, tenant="t", id=3, client=1, amount="5", place="here"), at=at(8))
    lake.load()
    assert ask(lake, "SELECT id FROM full_history.orders WHERE place = 'here'") == [(3,)]
    # rows that named the person by the former name go by both, and no others
    counts = erase_key(lake, CLIENTS, "7", f"{ORDERS}.client")
    assert {name: count["history"] for name, count in counts.items()} == {PURCHASES: 1, ORDERS: 1, CLIENTS: 1}
    assert {row[0] for row in ask(lake, query)} == {2, 3, 7}


class Later:
    """A clock 40 days ahead."""

    @staticmethod
    def now(tz):
        return datetime.now(tz) + timedelta(days=40)


@pytest.mark.long
def test_files_by_a_former_name_stay_for_good_and_go_on_when_the_rename_is_taken_back(lake, monkeypatch):
    renamed(lake)
    # records of then are gone from bronze: nothing could be built again
    lake.spark.sql(f"DELETE FROM delta.`{lake.file.root}/bronze/bank` WHERE `table` = '{ACCOUNTS}'")
    monkeypatch.setattr(drop, "datetime", Later)
    done = maintain.maintain(lake.spark, lake.file, "bank")
    assert done.skipped == []
    assert versions(lake) == OF_BOTH
    places = [f"{lake.file.root}/{layer}/bank/{ACCOUNTS}" for layer in ("silver", "history")]
    before = [delta_log.version(lake.spark, place) for place in places]
    drop.undo(lake.spark, lake.file, "bank", ACCOUNTS)
    assert [delta_log.version(lake.spark, place) for place in places] == before
    assert versions(lake, "history.accounts") == sorted(OF_ACCOUNTS, key=str)


@pytest.mark.long
def test_an_erasure_that_is_killed_behind_each_of_its_commits_is_ended_by_the_next_one_in_all_names(lake):
    renamed(lake)
    kills = 0
    while True:
        before, wanted = count_commits(lake.file), kills + 1
        command = f"erase bank {CLIENTS} 7 --reason request-12"
        if not killed_when(lake.file, command, lambda: count_commits(lake.file) - before >= wanted):  # noqa: B023 - it is used at once.
            break
        kills += 1
        lake.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        published._read.clear()
        # readers have whole publications, and loads go on
        assert set(OF_BOTH) - {row for row in OF_BOTH if row[0] == 7} <= set(versions(lake)) <= set(OF_BOTH)
        assert lake.load().problems == {}
    assert kills > 4
    published._read.clear()
    assert versions(lake) == sorted([row for row in OF_BOTH if row[0] != 7], key=str)
    assert not any(count for counts in erase_key(lake, CLIENTS, "7").values() for count in counts.values())
