"""A MariaDB source's stream in Debezium's envelope and forms becomes the source's rows in the lake."""

import pytest

from spark_jobs.query import published_tables
from tests.edge.fix_edge import arrive
from tests.integration.lake.test_lake_debezium_profile import take

MADE = """
create table every (
    id int primary key, note varchar(20) not null, small decimal(5,2), whole decimal(20,0), long_ decimal(38,10), da date,
    ti time, ti3 time(3), ti6 time(6), dt datetime, dt3 datetime(3), dt6 datetime(6), ts timestamp(6) null, b1 bit, y year,
    e enum('a', 'é"'), s set('x', 'y'), j json, t8u bigint unsigned, bl blob
) default character set utf8mb4
"""
WORK = [
    r"""insert into every values (1, 'a', -999.99, 99999999999999999999, -1234567890123456789012345678.0000000001, '2026-01-31',
        '-838:59:59', '-00:00:00.001', '26:00:00.250000', '1969-12-31 23:59:59', '1000-01-01 00:00:00.007',
        '9999-12-31 23:59:59.999999', '2026-01-31 09:15:00.25', 1, 2155, 'é"', 'x,y', '{"a": [1]}', 18446744073709551615,
        x'00ff')""",
    "insert into every (id, note, ti, ti3, ti6, b1) values (2, 'b', '-00:59:01', '838:59:59', '00:00:00', 0)",
    "insert into every (id, note, da) values (3, 'c', '9999-12-31')",
]
CHANGED = [
    "update every set note = 'kept', ti = '-00:00:01' where id = 1",
    "update every set id = 11 where id = 1",
    "begin",
    "update every set id = 12 where id = 11",
    "update every set id = 13, note = 'twice' where id = 12",
    "commit",
    "delete from every where id = 3",
]
#: As both the server and Spark show them.
SHOWN = (
    "id", "note", "small", "whole", "long_", "da", "ti", "ti3", "ti6", "y", "e", "s", "j", "t8u",
)  # fmt: skip
MOMENTS = ("dt", "dt3", "dt6", "ts")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_stream_of_debeziums_profile_is_the_sources_rows(maria, maria_edges, interconnect, logged_lake, spark):
    maria.execute("set time_zone = '+00:00'")
    maria.execute(MADE)
    edge = maria_edges(maria, interconnect.url, rest='[records]\nprofile = "debezium"')
    edge.init()
    lake = logged_lake()
    with edge.running():
        for statement in WORK:
            maria.execute(statement)
        arrive(interconnect, 3)
        taken = take(lake, interconnect, 0)
        assert lake.load().problems == {}
        for statement in CHANGED:
            maria.execute(statement)
        arrive(interconnect, 11)
    take(lake, interconnect, taken)
    assert lake.load().problems == {}

    assert "".join(change["op"] for change in interconnect.changes) == "cccudcdcdcd"
    frame = published_tables.frame(spark, lake.file, "bank", f"{maria.name}.every")
    shown = [f"cast({name} as string)" for name in (*SHOWN, *MOMENTS)]
    rows = [tuple(row) for row in frame.orderBy("id").selectExpr(*shown, "b1", "hex(bl)").collect()]
    there = ", ".join(f"cast({name} as char)" for name in (*SHOWN, *MOMENTS))
    wanted = maria.execute(f"select {there}, bin(b1), hex(bl) from every order by id")
    assert [plain(row) for row in rows] == [plain(row) for row in wanted]
    assert [row[0] for row in rows] == ["2", "13"]


def plain(row):
    """A row whose moments have no zeros behind their seconds."""
    moments = range(len(SHOWN), len(SHOWN) + len(MOMENTS))
    return tuple(
        value.rstrip("0").rstrip(".") if at in moments and value and "." in value else value
        for at, value in enumerate(row)
    )
