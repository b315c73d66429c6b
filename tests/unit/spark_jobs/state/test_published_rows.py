"""What is published as rows: only what changed is written, and the rows say the same as what they were made of."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

from headrace.lake.own_tables import TABLE_STATES, table_state
from spark_jobs.state import publication, published_rows
from spark_jobs.state.published_rows import Published, Table

J = "jakarta/bank"
NOW = datetime(2026, 11, 22, tzinfo=UTC)


def stream(**changes):
    tables = {
        "public.a": Table(table="public.a", version=3, positions={J: "5"}, keyed=True, since=1),
        "public.b": Table(table="public.b", version=7, history=2, positions={J: "5"}, since=1),
        "public.c": Table(table="public.c", version=1, positions={J: "2"}, problem="stopped here", since=2),
    }
    published = Published(stream="bank", load=4, data=4, finished_at=NOW, positions={J: "5"}, tables=tables)
    return replace(published, **changes)


def loaded(before, **tables):
    """Return the state after a load that brought the stream on to a position, and changed tables."""
    after = {
        name: replace(table, positions={J: "9"} if table.positions == before.positions else table.positions)
        for name, table in before.tables.items()
    }
    return replace(before, positions={J: "9"}, tables=after | tables)


def test_l13_rows_of_tables_that_a_load_did_not_change_are_not_written():
    before = stream()
    b = replace(before.tables["public.b"], version=8, changes=1, positions={J: "9"})
    after = loaded(before, **{"public.b": b})
    assert list(published_rows.changed(before, after)) == ["public.b"]
    rows = published_rows.rows(after, published_rows.changed(before, after))
    assert [row["table"] for row in rows] == [None, "public.b"]
    # a table that goes with its stream needs no positions of its own, one that stopped does
    assert rows[1]["positions"] is None
    stopped = {name: row for row in published_rows.rows(before, before.tables) if (name := row["table"])}["public.c"]
    assert (stopped["state"], stopped["reason"], stopped["positions"]) == ("stopped", "stopped here", {J: "2"})


def test_rows_say_what_they_were_made_of():
    before = stream()
    names = [column.strip().strip("`").split("` ")[0].split(" ")[0] for column in _columns()]
    rows = [dict.fromkeys(names) | row for row in published_rows.rows(before, before.tables)]
    result = published_rows.parse(rows, dict)
    assert result == {"bank": before}


def _columns():
    return [each for each in published_rows.COLUMNS.replace("map<string, string>", "map").split(", ") if each]


def test_l15_what_maintenance_published_meanwhile_stays():
    # given a load that worked on a state, and maintenance that has published a compacted table since
    base = stream()
    a = replace(base.tables["public.a"], version=4)
    now = replace(base, load=5, tables=base.tables | {"public.a": a})
    b = replace(base.tables["public.b"], version=8, changes=1, positions={J: "9"})
    # when the load publishes
    merged = publication._merged(base, now, loaded(base, **{"public.b": b}), maintenance=False)
    # then both are there
    assert (merged.load, merged.data) == (6, 6)
    assert (merged.tables["public.a"].version, merged.tables["public.b"].version) == (4, 8)
    assert merged.tables["public.a"].positions == {J: "9"}


def test_l15_maintenance_leaves_the_tables_that_a_load_published_meanwhile():
    # given maintenance that worked on a state, and a load that has published one of its tables since
    base = stream()
    b = replace(base.tables["public.b"], version=8, changes=1, positions={J: "9"})
    now = replace(loaded(base, **{"public.b": b}), load=5, data=5)
    compacted = {name: replace(base.tables[name], version=20) for name in ("public.a", "public.b")}
    # when it publishes
    merged = publication._merged(base, now, replace(base, tables=base.tables | compacted), maintenance=True)
    # then the load's version stays, and so do the stream's positions
    assert (merged.load, merged.data, merged.positions) == (6, 5, {J: "9"})
    assert (merged.tables["public.a"].version, merged.tables["public.b"].version) == (20, 8)
    assert list(published_rows.changed(now, merged)) == ["public.a"]


def test_rows_have_the_states_that_console_and_command_show():
    """A table that was not made yet was `current` or `behind` in SQL."""
    seen = set()
    places = product((None, "why"), ({}, {"a": "1"}), ({}, {"a": "why"}), (None, 3), ({}, {"a": "2"}))
    for problem, copying, held_back, version, positions in places:
        table = Table(
            table="t", problem=problem, copying=copying, held_back=held_back, version=version, positions=positions
        )
        (_, row) = published_rows.rows(Published(stream="bank", positions={"a": "2"}), {"t": table})
        shown = table_state(
            reason=row["reason"],
            copying=row["copying"],
            version=row["version"],
            behind=row["positions"] is not None,
            held_back=bool(row["held_back"]),
        )
        assert row["state"] == {"published": "current"}.get(shown, shown)
        seen.add(shown)
    assert seen == set(TABLE_STATES)
