"""The policy at a real database: nothing that it keeps back leaves, whether the log or a snapshot brings it."""

import pytest

from tests.fix_edge import arrive
from tests.integration.snapshots import ask, ended
from tests.waiting import eventually

_POLICY = """
tables = ["public.people", "public.audit"]
row_filters = { "public.people" = "country = 'ID'" }

[policy]
exclude_tables = ["*.audit"]
hash_key = "env:HASH_KEY"

[[policy.columns]]
columns = ["*.people.id", "*.people.parent"]
action = "hash"

[[policy.columns]]
columns = ["*.people.passport"]
action = "exclude"
"""


@pytest.fixture
def people(edges, database, interconnect, monkeypatch):
    monkeypatch.setenv("HASH_KEY", "0123456789abcdef")
    database.execute("create table audit (id int primary key)")
    database.execute(
        "create table people (id int, country text, parent int, passport text, primary key (id, country));"
        "insert into people values (1, 'ID', null, 'X1'), (2, 'UK', 1, 'X2')"
    )
    made = edges(database, interconnect.url, more=_POLICY)
    made.init()
    return made


def test_snapshot_and_stream_keep_back_the_same(people, database, interconnect):
    with people.running():
        # Given rows of before, which a snapshot brings, and changes after it.
        ask(people, "public.people")
        ended(people, "public.people")
        database.execute("insert into audit values (1)")
        database.execute("insert into people values (3, 'ID', 1, 'X3'), (4, 'UK', 1, 'X4')")
        arrive(interconnect, 2)
        # When the excluded table is asked for, then the snapshot says why not.
        ask(people, "public.audit")
        eventually(lambda: "leave the region" in (people.folder / "state").joinpath("snapshot.json").read_text())

    # Then of the rows only those of the filter came, hashed alike, and the child joins its parent.
    read, inserted = interconnect.changes
    assert [change["op"] for change in (read, inserted)] == ["r", "c"]
    assert inserted["after"]["parent"] == read["after"]["id"]
    assert len(read["after"]["id"]) == 64
    assert [list(change["after"]) for change in (read, inserted)] == [["id", "country", "parent"]] * 2
    assert [key for _, key, value in interconnect.records if "op" in value] == [
        {"id": change["after"]["id"], "country": "ID"} for change in (read, inserted)
    ]
