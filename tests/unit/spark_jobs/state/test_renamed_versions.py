"""What is published beside something else: a table's versions are the newest ones, under whichever name it has then."""

from dataclasses import replace
from datetime import UTC, datetime
from itertools import product

import pytest

from spark_jobs.maintenance import drop
from spark_jobs.state import publication
from spark_jobs.state.published_rows import Begin, Dropped, Published, Table, parse, rows

FORMER, PRESENT = "public.accounts", "public.clients"
NOW = datetime(2026, 1, 31, 9, 15, tzinfo=UTC)


def table(name, version=5):
    return Table(table=name, version=version, history=version, positions={"a/b": "9"})


STATE = Published(
    stream="bank", load=3, data=3, positions={"a/b": "9"}, tables={n: table(n) for n in (FORMER, PRESENT)}
)


def rename(state):
    return drop.without(state, Dropped(at=NOW, table=state.tables[FORMER], renamed_to=PRESENT))


def undo(state):
    others = {name: other for name, other in state.dropped.items() if name != FORMER}
    return replace(state, tables=state.tables | {FORMER: state.dropped[FORMER].table}, dropped=others)


def remove(state):
    return drop.without(state, Dropped(at=NOW, table=state.kept(FORMER)))


def load(state):
    new = replace(state.tables[PRESENT], version=state.tables[PRESENT].version + 1, changes=1)
    return replace(state, tables=state.tables | {PRESENT: new})


def write(state):
    """Return a state in which maintenance has written the former table: an erasure, or compaction."""
    own = state.kept(FORMER)
    own = replace(own, version=own.version + 1, history=own.history + 1)
    if FORMER in state.tables:
        return replace(state, tables=state.tables | {FORMER: own})
    return replace(state, dropped=state.dropped | {FORMER: replace(state.dropped[FORMER], table=own)})


def of_maintenance(state, now):
    """Return the states that an erasure publishes by: of tables it has its own alone."""
    base, done = (
        replace(each, tables={n: t for n, t in each.tables.items() if n == FORMER}) for each in (state, write(state))
    )
    return base, now, done


def publish(base, now, done, *, maintenance=False):
    return publication._merged(base, now, done, maintenance=maintenance)


def states():
    yield "by its name", STATE, (rename, remove, load)
    yield "renamed", rename(STATE), (undo, remove, load)


CASES = [
    (f"{name}, {change.__name__}, write {order}", state, change, order)
    for (name, state, changes), order in product(states(), ("meanwhile", "first"))
    for change in changes
]


@pytest.mark.parametrize(("state", "change", "order"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_versions_of_a_table_are_the_newest_ones_whoever_publishes_first(state, change, order):
    if order == "meanwhile":
        # what maintenance publishes while something else is on its way
        now = publish(*of_maintenance(state, state), maintenance=True)
        after = publish(state, now, change(state))
    else:
        now = publish(state, state, change(state))
        after = publish(*of_maintenance(state, now), maintenance=True)
    # then the name is what the change made of it
    wanted = change(state)
    assert (after.tables.keys(), after.renamed.keys()) == (wanted.tables.keys(), wanted.renamed.keys())
    assert {n: d.renamed_to for n, d in after.dropped.items()} == {n: d.renamed_to for n, d in wanted.dropped.items()}
    # and the versions are those without what was erased; of a table that was dropped nothing is kept
    if FORMER in wanted.tables or FORMER in wanted.renamed:
        kept = after.kept(FORMER)
        assert (kept.version, kept.history) == (6, 6)
    assert after.tables[PRESENT].version == wanted.tables[PRESENT].version


def test_a_rename_is_read_as_it_was_published():
    begins = {"a/b": Begin(at="7", time=NOW)}
    state = drop.without(STATE, Dropped(at=NOW, table=STATE.tables[FORMER], renamed_to=PRESENT, begins=begins))
    stored = rows(replace(state, started_at=NOW, finished_at=NOW), state.tables, state.dropped)
    read = parse([{"schemas": {}} | row for row in stored], lambda digests: digests)["bank"]
    assert read.dropped[FORMER].begins == begins
    assert (read.renamed.keys(), read.former_names(PRESENT), read.other_names(FORMER)) == (
        {FORMER},
        [FORMER],
        [PRESENT],
    )


@pytest.mark.parametrize("first", ["rename", "erasure"])
def test_a_rename_that_brings_what_maintenance_had_left_takes_nothing_of_an_erasure_back(first):
    left = replace(STATE.tables[FORMER], version=6, history=6)
    renamed = drop.without(STATE, Dropped(at=NOW, table=left, renamed_to=PRESENT))
    erased = replace(STATE.tables[FORMER], version=8, history=8)
    base, done = (replace(STATE, tables={FORMER: own}) for own in (STATE.tables[FORMER], erased))
    if first == "erasure":
        after = publish(STATE, publish(base, STATE, done, maintenance=True), renamed)
    else:
        after = publish(base, publish(STATE, STATE, renamed), done, maintenance=True)
    assert (after.renamed[FORMER].version, after.renamed[FORMER].history) == (8, 8)
