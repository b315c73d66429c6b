"""The copy of existing rows beside the stream: every row once, none older than the log, whatever happens meanwhile."""

import json
import random
import threading
from contextlib import closing

import pytest

from edge.postgres.connection import Database
from edge.postgres.snapshot_reader import _SETTINGS
from edge.postgres.snapshot_table import describe
from tests.integration.edge.snapshots import (
    as_letters,
    ask,
    copy,
    ended,
    folder,
    held,
    plans,
    raw,
    records,
    replay,
    schema_records,
    stored,
)
from tests.integration.edge.test_edge_values import COLUMNS
from tests.integration.verify.verify_types import RANDOMS, TABLE_OF_EVERY_TYPE, random_row
from tests.rules.waiting import eventually


def test_a_row_has_the_same_bytes_by_snapshot_and_by_stream(edge, database, interconnect):
    chance = random.Random(3)
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _, _) in enumerate(COLUMNS))
    with edge.running():
        eventually(edge.reading)
        database.execute(TABLE_OF_EVERY_TYPE)
        database.execute("create domain positive as int check (value > 0); create type pair as (a int, b text)")
        database.execute(f"create table more (id int primary key, {columns})")
        database.execute(f"insert into more values (1, {', '.join(literal for _, literal, _ in COLUMNS)})")
        database.execute("insert into more (id) values (2)")
        database.execute(RANDOMS)
        for number in range(300):
            row = random_row(chance, number)
            database.execute(f"insert into randoms values ({', '.join(['%s'] * len(row))})", row)
        streamed = 7 + 2 + 300
        eventually(lambda: len(interconnect.changes) >= streamed)
        copy(edge, "public.everything", "public.more", "public.randoms")

    reported = schema_records(interconnect)
    assert sorted(raw(interconnect, b"r")) == sorted(raw(interconnect, b"c"))
    assert len(raw(interconnect, b"r")) == streamed
    # What the catalog says of a table equals what the log says of it, so nothing is announced anew.
    assert len(reported) == 3


KEYS = [
    ("a text primary key", "md5(i::text)"),
    ('a text collate "C" primary key', "chr(60 + i % 60) || i"),
    ("a text primary key", r"(array['a', 'B', 'ä', 'Z', '_', '''', E'\\', E'\n', E'\t'])[1 + i % 9] || i"),
    ("a uuid primary key", "gen_random_uuid()"),
    ("a numeric primary key", "i / 7.0"),
    ("a timestamptz primary key", "'2026-01-01'::timestamptz + i * interval '1 hour'"),
    ("a bytea primary key", "decode(md5(i::text), 'hex')"),
    ("a char(8) primary key", "'x' || i"),
    ("a text, b int, primary key (b, a)", "'k' || i % 7, i"),
    ("a uuid, b text, c date, primary key (a, b, c)", "md5((i % 3)::text)::uuid, 'x' || i, '2026-01-01'::date"),
]


@pytest.mark.parametrize(
    ("columns", "values"), KEYS, ids=[f"{number}-{columns}" for number, (columns, _) in enumerate(KEYS)]
)
def test_any_kind_of_key_leads_through_the_whole_table(edge, database, interconnect, columns, values):
    database.execute(f"create table k ({columns}); insert into k select {values} from generate_series(1, 2300) i")
    with edge.running():
        tables = copy(edge, "public.k")

    read = records(interconnect, "k", "r")
    assert tables["public.k"].state == "done"
    assert tables["public.k"].chunks > 1
    assert len(read) == 2300
    assert len({json.dumps(key) for key, _ in read}) == 2300


#: Keys whose order is not that of the operators which the role's path finds, as columns, what else the table needs, and values.
CASES = "(case when i % 2 = 0 then 'a' else 'B' end) || i"
BACKWARDS = """
create function apart.cmp(int, int) returns int language sql immutable strict as 'select btint4cmp($2, $1)';
create operator class apart.backwards for type int using btree as
operator 1 >, operator 2 >=, operator 3 =, operator 4 <=, operator 5 <, function 1 apart.cmp(int, int)
"""
OTHER_ORDERS = [
    ('c apart.citext collate "C" primary key', "", CASES),
    ('n int, c apart.citext collate "C", primary key (c, n)', "", f"i % 7, {CASES}"),
    ('n int, c apart.name collate "C", m int, primary key (n, c, m)', "", f"i % 3, {CASES}, i % 5"),
    (
        "c int not null",
        "create unique index other on k (c apart.backwards); alter table k replica identity using index other",
        "i",
    ),
]


@pytest.mark.parametrize(("columns", "more", "values"), OTHER_ORDERS, ids=["single", "first", "second", "class"])
def test_a_key_of_another_order_than_its_type_has_by_name_leads_through_the_whole_table(
    edge, database, interconnect, columns, more, values
):
    database.execute("create schema apart; create extension citext schema apart")
    database.execute("create domain apart.name as apart.citext")
    database.execute(BACKWARDS)
    database.execute(f"create table k ({columns}); {more}")
    database.execute(f"insert into k select {values} from generate_series(1, 2300) i")
    with edge.running():
        tables = copy(edge, "public.k")
        read = records(interconnect, "k", "r")
        replay(edge, as_letters(interconnect, "k", op="r")[:3])

    assert tables["public.k"].chunks > 1
    assert len(read) == len({json.dumps(key) for key, _ in read}) == 2300
    assert len(records(interconnect, "k", "r")) == 2303


IDENTITY = "alter table k replica identity using index other"
#: Keys that few have: the same.
ODD = {
    "citext by the order of text": (
        "c apart.citext not null",
        "create unique index other on k (c text_ops)",
        "(case when i % 2 = 0 then 'a' else 'A' end) || i / 2",
    ),
    "descending": (
        "a int not null, b text not null",
        "create unique index other on k (a desc, b nulls first)",
        "i % 9, 'x' || i",
    ),
    "more in the index": ("b text, a int not null", "create unique index other on k (a) include (b)", "'x' || i, i"),
    "by bytes": ("c text not null", "create unique index other on k (c text_pattern_ops)", CASES),
    "another collation": ('c text collate "C" not null', 'create unique index other on k (c collate "default")', CASES),
    "a class without all operators": ("c int not null", "create unique index other on k (c apart.few)", "i"),
    "composite": ("c apart.pair primary key", "", "(i % 7, 'x,\"' || i)::apart.pair"),
    "array": ("c int[] primary key", "", "array[i % 7, i]"),
    "domain over an array": ("c apart.list primary key", "", "array[i % 7, i]"),
    "array of citext": ("c apart.citext[] primary key", "", f"array[{CASES}]"),
    "range": ("c int4range primary key", "", "int4range(i, i + 5)"),
    "enum": ("e apart.mood, n int, primary key (e, n)", "", "(array['z', 'a', 'm'])[1 + i % 3]::apart.mood, i"),
    "jsonb": ("c jsonb primary key", "", "to_jsonb(array[i % 7, i])"),
    "inet": ("c cidr primary key", "", "('10.' || i / 250 || '.' || i % 250 || '.0/24')::cidr"),
    "interval": ("c interval primary key", "", "i * interval '1 hour'"),
    "regclass": ("c regclass, n int, primary key (c, n)", "", "(array['pg_class', 'k'])[1 + i % 2]::regclass, i"),
    "name": ("c name primary key", "", CASES),
    "temporal": (
        "c int4range, v daterange, primary key (c, v without overlaps)",
        "",
        "int4range(i % 50, i % 50 + 1), daterange(date '2026-01-01' + i, date '2026-01-02' + i)",
    ),
    "float": ("c float4 primary key", "", "case i when 1 then 'NaN' when 2 then '-Infinity' else i / 7.0 end"),
}
#: Of which no index has the order in which they are read.
SORTED = {"descending", "a class without all operators", "temporal"}
FEW = "create operator class apart.few for type int using btree as operator 1 <, operator 3 =, function 1 btint4cmp(int, int)"


@pytest.mark.parametrize("kind", ODD)
def test_odd_keys_lead_through_the_whole_table(edge, database, interconnect, kind):
    columns, index, values = ODD[kind]
    database.execute("create schema apart; create extension citext schema apart; create domain apart.list as int[]")
    database.execute("create type apart.pair as (a int, b text); create type apart.mood as enum ('z', 'a', 'm')")
    database.execute(FEW)
    database.execute(f"create table k ({columns})")
    if index:
        database.execute(f"{index}; {IDENTITY}")
    database.execute(f"insert into k select {values} from generate_series(1, 2300) i")
    with edge.running():
        tables = copy(edge, "public.k")

    read = records(interconnect, "k", "r")
    database_of_edge = edge.config.source.postgresql
    with Database(database_of_edge, edge.source) as reader:
        reader.rows(_SETTINGS)
        select = describe(reader, database_of_edge.publication, "public.k").select_after(None, None, 10)
        plan = reader.rows(f"explain {select.removeprefix('copy (').removesuffix(') to stdout')}")
    assert any("Sort" in line for (line,) in plan) is (kind in SORTED)
    assert tables["public.k"].problem == ""
    assert tables["public.k"].chunks > 1
    assert len(read) == len({json.dumps(key) for key, _ in read}) == 2300


WRITES = [
    "update w set n = n + 1 where id = %(key)s",
    "update w set n = n + 1, body = repeat('z', 2100 + %(key)s %% 9) where id = %(key)s",
    "update w set id = %(other)s where id = %(key)s and not exists (select from w where id = %(other)s)",
    "update w set id = %(key)s where id = %(other)s and not exists (select from w where id = %(key)s)",
    "delete from w where id = %(key)s",
    "insert into w values (%(key)s, 1, repeat('y', 2200)) on conflict do nothing",
]


def test_writers_never_make_a_copied_row_older_than_the_log_nor_incomplete(edge, database, interconnect):
    database.execute(
        "create table w (id int primary key, n int, body text); alter table w alter body set storage external"
    )
    database.execute("insert into w select i, 0, repeat(chr(65 + i % 26), 2100) from generate_series(1, 3000) i")
    stop = threading.Event()

    def write(number):
        chance = random.Random(number)
        with closing(database.connect()) as connection, connection.cursor() as cursor:
            # Slower than the edge reads, which shares this process: a watermark comes back after all that was written before it.
            while not stop.wait(0.003):
                # Each writer has rows of its own, so that no two wish for one key.
                key, other = chance.randrange(number, 3000, 3), 10_000 + chance.randrange(number, 3000, 3)
                cursor.execute(chance.choice(WRITES), {"key": key, "other": other})

    writers = [threading.Thread(target=write, args=(number,)) for number in range(3)]
    with edge.running():
        eventually(edge.reading)
        for writer in writers:
            writer.start()
        try:
            tables = copy(edge, "public.w")
        finally:
            stop.set()
            for writer in writers:
                writer.join(60)
        wanted = stored(database, "w")
        eventually(
            lambda: held(interconnect, "w") == wanted,
            saying="the consumer holds what the database holds",
            progress=lambda: len(interconnect.changes),
        )
    assert tables["public.w"].state == "done"


def test_a_row_that_moves_into_the_copied_part_while_the_edge_is_down_and_paused_keeps_its_large_column(
    edges, database, interconnect
):
    """E4: the log lacks the large column, which did not change, and nothing but the copy can bring it."""
    database.execute("create table w (id int primary key, body text); alter table w alter body set storage external")
    database.execute("insert into w select i, repeat(chr(65 + i % 26), 2100) from generate_series(1, 3000) i")
    edge = edges(database, interconnect.url, rest="[snapshot]\nchunk_kilobytes = 64")
    edge.init()
    interconnect.hold(after=3)
    with edge.running():
        ask(edge, "public.w")
        eventually(lambda: interconnect.held, saying="chunks are copied")
        ask(edge, kind="pause")
        eventually(lambda: folder(edge).plan().paused, saying="it is paused")
        interconnect.let_go()
        eventually(lambda: plans(edge)["public.w"].cursor, saying="chunks are acknowledged")
    assert 0 < int(plans(edge)["public.w"].cursor[0]) < 3000
    database.execute("update w set id = 0 where id = 3000")
    with edge.running():
        eventually(lambda: records(interconnect, "w", "u"), saying="the move has arrived")
        ask(edge, kind="resume")
        ended(edge, "public.w")
        wanted = stored(database, "w")
        eventually(lambda: held(interconnect, "w") == wanted, saying="the consumer holds what the database holds")
