"""A stream in Debezium's envelope and forms becomes the same rows in the lake: a real source and its edge, and verify."""

import json
from datetime import UTC, datetime

import pytest

from spark_jobs.query import published_tables
from tests.edge.fix_edge import arrive

pytest_plugins = ["tests.lake.fix_verify"]

MADE = """
create extension ltree;
create table every (
    id int primary key, note text not null, large text, exact numeric(20,4), huge numeric(38,10), free numeric, day date,
    hour time, short time(3), local timestamp, brief timestamp(3), instant timestamptz, flag bit, code uuid, doc jsonb,
    tree ltree, numbers int[], words text[], flags bool[], bytes bytea
);
alter table every alter large set storage external;
create table dated (day date, number numeric(6,2), n int, large text, primary key (day, number));
alter table dated alter large set storage external
"""
WORK = [
    r"""insert into every values
       (1, 'a', repeat('x', 9000), -1234.5, -9999999999999999999999999999.0000000001, 1.25, '2026-01-31', '09:15:00.25',
        '24:00:00', '2026-01-31 09:15:00.123456', '1969-12-31 23:59:59.999', '2026-01-31 09:15:00.25+07', B'1',
        'c0ffee00-0000-4000-8000-000000000001', '{"a": 1}', 'a.b', '{1,NULL,-3}',
        array['a "b"', 'c\d', null, '', 'null', 'x,y', 's'], '{t,f}', '\x00ff'),
       (2, 'b', 'short', 0, 0.0000000001, -120, 'infinity', '00:00:00', '00:00:00.007', '-infinity', 'infinity', 'infinity',
        B'0', null, '[]', '', '{}', '{}', '{}', '')""",
    """insert into every (id, note, exact, huge, day, local, instant) values
       (3, 'c', 9999999999999999.9999, -9999999999999999999999999999.9999999999, '0044-03-15 BC', '0044-03-15 12:00:00 BC',
        '0044-03-15 12:00:00+00 BC')""",
    "insert into every (id, note, large, day) values (4, 'd', repeat('y', 9000), '10000-01-01')",
    "insert into dated values ('2026-01-31', 1.5, 1, repeat('z', 9000)), ('2026-02-01', -2, 2, 'b')",
]
CHANGED = [
    "update every set note = 'kept' where id = 1",
    "update every set id = 11 where id = 1",
    "update dated set day = '2026-03-01', number = 7.25 where n = 1",
    "begin; update every set id = 12 where id = 11; update every set id = 13, note = 'twice' where id = 12; commit",
    "delete from every where id = 2",
    "update every set id = 2 where id = 4",
]


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stream_of_debeziums_profile_is_the_sources_rows(database, edges, interconnect, logged_lake, spark, verified):
    database.execute(MADE)
    edge = edges(database, interconnect.url, more='[records]\nprofile = "debezium"')
    edge.init()
    lake = logged_lake()
    with edge.running():
        for statement in WORK:
            database.execute(statement)
        arrive(interconnect, 6)
        taken = take(lake, interconnect, 0)
        for statement in CHANGED:
            database.execute(statement)
        arrive(interconnect, 18)
    assert lake.load().problems == {}
    # what the log does not carry is in silver by now, and under another key
    take(lake, interconnect, taken)
    assert lake.load().problems == {}

    assert "".join(change["op"] for change in interconnect.changes) == "ccccccudcdcdcdcddc"
    frames = {f"public__{table}": rows(spark, lake, table) for table in ("every", "dated")}
    result = verified(**frames)
    for report in result.values():
        assert (report.equal, report.differences, report.reasons) == (True, [], []), report
    assert {name: report.rows_lake for name, report in result.items()} == {"public.every": 3, "public.dated": 2}
    row = frames["public__every"].where("id = 13").selectExpr("length(large)", "cast(huge as string)").first()
    assert tuple(row) == (9000, "-9999999999999999999999999999.0000000001")


def rows(spark, lake, table):
    """A table of silver, its own columns alone."""
    frame = published_tables.frame(spark, lake.file, "bank", f"public.{table}")
    return frame.select(*(name for name in frame.columns if not name.startswith("_")))


def take(lake, interconnect, since):
    """Put what arrived into bronze's input, as a bridge would; return how many records have."""
    feed = lake.feeds[0]
    records = list(interconnect.records)
    for _, *parts in records[since:]:
        key, value = (part and json.dumps(part, separators=(",", ":")).encode() for part in parts)
        feed.waiting.append(("bank", 0, feed.offset, datetime.now(UTC), key, value))
        feed.offset += 1
    return len(records)
