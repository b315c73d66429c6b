"""Which tables are published, by the rows of the lake's own table `state`; and what opening a lake refuses."""

from datetime import UTC, datetime, timedelta

import pytest

from headrace.errors import ConfigurationError
from headrace.lake import open as open_lake
from headrace.lake import own_tables

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NAMES = [
    {"stream": "bank", "table": f"public.{name}", "name": name} for name in ("accounts", "gone", "stopped", "again")
]


def row(load, table, version, **more):
    given = {"path": f"silver/bank/{table}", "history": None, "positions": None, "since": None, "dropped": None}
    return (
        {"stream": "bank", "load": load, "table": table, "version": version} | given | {"finished_at": at(load)} | more
    )


def at(load):
    return NOON + timedelta(hours=load)


STATES = [
    *(row(load, None, None, positions={"a/b": str(load)}) for load in (1, 2, 3)),
    row(1, "public.accounts", 4),
    row(1, "public.gone", 5),
    row(3, "public.gone", 5, dropped="2026-03-01"),
    row(1, "public.stopped", 6, positions={"a/b": "1"}),
    row(2, "public.stopped", 6, positions={"a/b": "1"}, reason="a column became text"),
    row(1, "public.again", 7),
    row(3, "public.again", 0, since=3),
]


def versions(as_of=None):
    return {name: table.version for name, table in own_tables.published_tables(STATES, NAMES, as_of).items()}


def test_a_stopped_table_is_as_it_was_and_a_dropped_one_is_not_there_nor_was_it():
    assert versions() == {"silver.accounts": 4, "silver.stopped": 6, "silver.again": 0}
    # and a table that was made again had other files then
    assert versions(at(2)) == {"silver.accounts": 4, "silver.stopped": 6}
    # and each is where it was published
    published_tables = own_tables.published_tables(STATES, NAMES)
    assert published_tables["silver.stopped"].positions == {"a/b": "1"}
    assert published_tables["silver.accounts"].positions == {"a/b": "3"}


def test_a_lakes_file_of_another_release_is_refused_by_name(tmp_path):
    file = tmp_path / "lake.toml"
    file.write_text(
        '[lake]\nroot = "lake"\nof_tomorrow = 1\n[kafka]\nbootstrap = "k:1"\n[streams.s]\nsources = ["a/b"]\n'
    )
    with pytest.raises(ConfigurationError, match="of_tomorrow"):
        open_lake(file)
