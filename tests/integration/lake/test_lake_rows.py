"""Rows that are rare and right all the same: keys beyond Python's dates (L10), keys that change often (L27), long texts (L33).

And values that silver's types cannot hold, in a table that does not stop at them (T12).
"""

from datetime import date

import pytest

DAYS, MOVED, LONG, BEYOND = "public.days", "public.moved", "public.long", "public.beyond"
STOPPED = "public.stopped"
J = "jakarta/bank"


def columns(**kinds: str):
    return {name: (kind, None, None) for name, kind in kinds.items()}


@pytest.mark.long
def test_rare_rows_are_loaded_and_changed_again(logged_lake):
    # given a table whose key begins with a date
    lake = logged_lake(f'[streams.bank.tables."{BEYOND}"]\non_unsupported = "null"\n')
    one, _ = lake.feeds
    dates = ["infinity", "-infinity", "0044-03-15 BC", "12026-01-31", "2026-01-31"]
    one.commit(
        one.schema(columns(day="date", at="timestamptz", note="text"), ["day", "at"], DAYS),
        *(one.insert(DAYS, day=day, at="infinity", note="first") for day in dates),
    )
    # and a row whose key will change often, without its large columns
    one.commit(
        one.schema(columns(id="int8", note="text", other="text"), table=MOVED),
        one.insert(MOVED, id=0, note="kept", other="changed later"),
        one.insert(MOVED, id=1000, note="theirs", other="theirs"),
    )
    # and a text beyond 20 million characters
    one.commit(one.schema(columns(id="int8", text="text"), table=LONG), one.insert(LONG, id=1, text="x" * 20_000_001))
    # and one with values that no type of Spark holds, next to one that stops at them (T12)
    for table in (BEYOND, STOPPED):
        one.commit(
            one.schema(columns(id="int8", at="timestamp", day="DATE"), table=table),
            one.insert(table, id=1, at="294276-12-31 00:00:00", day="2026-00-00"),
            one.insert(table, id=2, at="2026-01-31 00:00:00", day="2026-01-31"),
        )
    problems = lake.load().problems
    assert list(problems) == [STOPPED]
    assert 'on_unsupported = "null"' in problems[STOPPED]
    # when rows are changed in a later load (L10)
    one.commit(*(one.update(DAYS, day=day, at="infinity", note="second") for day in dates))
    # and a key changes 70 times within one load, before and after another column is written (L27)
    one.commit(
        *(one.update(MOVED, before={"id": i}, id=i + 1, unchanged=["note", "other"]) for i in range(60)),
        one.update(MOVED, id=60, other="new", unchanged=["note"]),
        *(one.update(MOVED, before={"id": i}, id=i + 1, unchanged=["note", "other"]) for i in range(60, 70)),
        one.update(MOVED, before={"id": 1000}, id=1001, unchanged=["note", "other"]),
    )
    one.commit(one.update(LONG, id=1, text="y" * 20_000_001))
    # then
    one.commit(one.update(BEYOND, before={"id": 2}, id=3, unchanged=["at"], day="0000-00-00"))
    assert list(lake.load().problems) == [STOPPED]
    assert lake.rows("id", "date(at)", "day", table=BEYOND) == [(J, 1, None, None), (J, 3, date(2026, 1, 31), None)]
    days = lake.rows("cast(day as string)", "note", table=DAYS)
    assert sorted(day for _, day, _ in days) == sorted(
        ["+5881580-07-11", "-5877641-06-24", "-0043-03-15", "+12026-01-31", "2026-01-31"]
    )
    assert {note for _, _, note in days} == {"second"}
    assert lake.rows("id", "note", "other", table=MOVED) == [(J, 1001, "theirs", "theirs"), (J, 70, "kept", "new")]
    assert lake.rows("length(text)", "left(text, 1)", table=LONG) == [(J, 20_000_001, "y")]
