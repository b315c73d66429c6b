"""An edge with default settings stays below 256 MB whatever its source sends: the peak of its process, by the kernel."""

import re
from pathlib import Path

import pytest

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy

LIMIT_MEGABYTES = 256


def peak(edge):
    """Return the most memory that the edge's process had so far, in megabytes."""
    status = Path(f"/proc/{edge.process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) / 1024


@pytest.fixture
def started(edges, database, interconnect):
    """Return what starts an edge of tables, in a process of its own."""
    edge = edges(database, interconnect.url)

    def start(tables):
        database.execute(tables)
        edge.init()
        edge.start()
        return edge

    yield start
    if edge.process is not None:
        edge.kill()


CASES = {
    "a value of 64 MB": (
        "insert into t select 0, string_agg(chr(97 + n %% 26), '') from generate_series(1, 67108864) n",
        1,
    ),
    # The log has them as text, of twice the size.
    "bytes of 40 MB": ("insert into b select 0, decode(repeat('ab', 41943040), 'hex')", 1),
    "a transaction of 300 MB": (
        "insert into t select n, repeat(md5(n::text), 3200) from generate_series(1, 3000) n",
        3000,
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("case", CASES)
def test_changes_larger_than_memory(started, database, interconnect, case):
    statement, count = CASES[case]
    edge = started("create table t (id int primary key, note text); create table b (id int primary key, data bytea)")
    database.execute(statement, [])
    arrive(interconnect, count, seconds=300)

    print(f"{case}: {peak(edge):.0f} MB")
    assert peak(edge) < LIMIT_MEGABYTES


@pytest.mark.long
def test_bytes_of_64_mb_concern_their_row_alone(started, database, interconnect):
    """G7. The log has them as 128 MB of text, which PostgreSQL's driver has twice for a moment: beyond the limit, but bounded."""
    edge = started("create table b (id int primary key, data bytea)")
    database.execute("insert into b select 0, decode(repeat('ab', 67108864), 'hex')", [])
    database.execute("insert into b values (1, 'behind it')", [])
    arrive(interconnect, 2, seconds=300)

    large, behind = interconnect.changes
    assert large["too_large"]["bytes"] > 64 << 20
    assert (large["after"], behind["after"]["id"]) == ({"id": 0}, 1)
    print(f"bytes of 64 MB: {peak(edge):.0f} MB")
    assert peak(edge) < LIMIT_MEGABYTES + 64


@pytest.mark.long
def test_a_copy_of_wide_rows(started, database, interconnect):
    edge = started("create table t (id int primary key, note text)")
    database.execute("alter table t alter note set storage external")
    database.execute("insert into t select n, repeat(md5(n::text), 160000) from generate_series(1, 60) n", [])
    arrive(interconnect, 60, seconds=300)
    copy(edge, "public.t")
    arrive(interconnect, 120, seconds=300)

    print(f"a copy of rows of 5 MB: {peak(edge):.0f} MB")
    assert peak(edge) < LIMIT_MEGABYTES


@pytest.mark.long
def test_ten_thousand_tables(started, database, interconnect):
    many = 10_000
    edge = started("create table t (id int primary key)")
    for at in range(0, many, 500):
        names = range(at, at + 500)
        database.execute(
            "; ".join(f"create table t{name} (id int primary key, note text, at timestamptz)" for name in names)
        )
        database.execute("; ".join(f"insert into t{name} values (1, 'a', now())" for name in names))
    arrive(interconnect, many, seconds=300)

    print(f"{many} tables: {peak(edge):.0f} MB")
    assert peak(edge) < LIMIT_MEGABYTES
