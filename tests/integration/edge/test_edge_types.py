"""The types of docs/types.md that test_edge_values.py does not have: each arrives as that page says, under its own name."""

import pytest

from tests.edge.fix_edge import WAYS, arrive, decoding
from tests.integration.edge import test_edge_values

MADE = """
create extension citext; create extension hstore; create extension ltree;
create type mood as enum ('calm', 'busy'); create type pair as (a int, b text); create domain cents as numeric(9,2);
create domain price as cents; create domain words as text[]; create domain feeling as mood;
create schema other; create type other.int4 as enum ('odd');
create type floats as range (subtype = float8)
"""
#: (type, literal, what arrives, what the schema record calls it)
COLUMNS = [
    ("jsonpath", "'$.a'", '$."a"', "jsonpath"),
    ("varbit(9)", "B'1010'", "1010", "varbit"),
    ("cidr", "'10.0.0.0/8'", "10.0.0.0/8", "cidr"),
    ("macaddr", "'08:00:2b:01:02:03'", "08:00:2b:01:02:03", "macaddr"),
    ("macaddr8", "'08:00:2b:01:02:03:04:05'", "08:00:2b:01:02:03:04:05", "macaddr8"),
    ("line", "'{1,2,3}'", "{1,2,3}", "line"),
    ("lseg", "'[(1,2),(3,4)]'", "[(1,2),(3,4)]", "lseg"),
    ("box", "'(3,4),(1,2)'", "(3,4),(1,2)", "box"),
    ("path", "'((1,2),(3,4))'", "((1,2),(3,4))", "path"),
    ("polygon", "'((1,2),(3,4))'", "((1,2),(3,4))", "polygon"),
    ("circle", "'<(1,2),0.1>'", "<(1,2),0.1>", "circle"),
    ("tsvector", "'a fat cat'", "'a' 'cat' 'fat'", "tsvector"),
    ("tsquery", "'fat & cat'", "'fat' & 'cat'", "tsquery"),
    ("numrange", "'(1.5,2]'", "(1.5,2]", "numrange"),
    ("tstzrange", "'[2026-01-31 09:00+00,)'", '["2026-01-31 09:00:00+00",)', "tstzrange"),
    ("int4multirange", "'{[1,3),[5,6)}'", "{[1,3),[5,6)}", "int4multirange"),
    ("datemultirange", "'{[2026-01-01,2026-01-03)}'", "{[2026-01-01,2026-01-03)}", "datemultirange"),
    ("floats", "'[0.1,0.2)'", "[0.1,0.2)", "floats"),
    ("pg_lsn", "'16/B374D848'", "16/B374D848", "pg_lsn"),
    ("xid8", "'42'", "42", "xid8"),
    ("regclass", "'pg_class'", "pg_class", "regclass"),
    ('"char"', "'x'", "x", "char"),
    ("name", "'n'", "n", "name"),
    ("interval", "'-1 mon +00:00:00.000001'", "-1 mons +00:00:00.000001", "interval"),
    ("time", "'24:00:00'", "24:00:00", "time"),
    ("numeric", "'Infinity'", "Infinity", "numeric"),
    ("numeric(9,2)", "'NaN'", "NaN", "numeric"),
    ("numeric(5,-2)", "12345", "12300", "numeric"),
    ("real", "'-Infinity'", "-Infinity", "float4"),
    ("timestamp", "'0044-03-15 12:00:00.5 BC'", "0044-03-15 12:00:00.5 BC", "timestamp"),
    ("timestamptz", "'0044-03-15 12:00:00+00 BC'", "0044-03-15 12:00:00+00 BC", "timestamptz"),
    ("timestamptz", "'294276-12-31 23:59:59.999999+00'", "294276-12-31T23:59:59.999999Z", "timestamptz"),
    ("numeric[]", "'{1.50,NaN}'", "{1.50,NaN}", "_numeric"),
    ("timestamptz[]", "array['2026-01-31 09:00+00'::timestamptz]", '{"2026-01-31 09:00:00+00"}', "_timestamptz"),
    ("bytea[]", r"array['\x00ff'::bytea]", r'{"\\x00ff"}', "_bytea"),
    ("int4range[]", "array['[1,3)'::int4range]", '{"[1,3)"}', "_int4range"),
    ("int[][]", "'[0:1][1:2]={{1,2},{3,4}}'", "[0:1][1:2]={{1,2},{3,4}}", "_int4"),
    ("mood", "'busy'", "busy", "mood"),
    ("mood[]", "array['busy'::mood]", "{busy}", "_mood"),
    ("pair", "(1, 'x y')", '(1,"x y")', "pair"),
    ("other.int4", "'odd'", "odd", "other.int4"),
    ("cents", "7.5", "7.50", "numeric"),
    ("price", "7.5", "7.50", "numeric"),
    ("words", "'{a}'", "{a}", "_text"),
    ("feeling", "'calm'", "calm", "mood"),
    ("citext", "'Ab'", "Ab", "citext"),
    ("hstore", "'a=>1'", '"a"=>"1"', "hstore"),
    ("ltree", "'a.b'", "a.b", "ltree"),
]


def test_types_arrive_as_documented_under_their_own_names(edges, database, interconnect):
    columns = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(COLUMNS))
    database.execute(MADE)
    database.execute(f"create table every (id int primary key, {columns}); alter table every replica identity full")
    edge = edges(database, interconnect.url)
    edge.init()
    with edge.running():
        database.execute(f"insert into every values (1, {', '.join(literal for _, literal, *_ in COLUMNS)})")
        database.execute("update every set id = 2")
        database.execute("insert into every (id) values (3)")
        arrive(interconnect, 3)

    row = {f"c{number}": shown for number, (_, _, shown, _) in enumerate(COLUMNS)}
    inserted, updated, empty = interconnect.changes
    assert inserted["after"] == {"id": 1} | row
    assert updated["before"] == {"id": 1} | row
    assert updated["after"] == {"id": 2} | row
    assert empty["after"] == {"id": 3} | dict.fromkeys(row)
    reported = interconnect.records[0][2]["tableChanges"][0]["table"]["columns"][1:]
    assert [column["typeName"] for column in reported] == [name for *_, name in COLUMNS]


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_one_value_arrive_the_same_whatever_decodes_them(edges, database, interconnect, way):
    """A row with something unusual is decoded exactly, whole: here each value is alone."""
    kinds = [*(column[:3] for column in COLUMNS), *test_edge_values.COLUMNS]
    columns = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(kinds))
    database.execute(f"{MADE}; create domain positive as int")
    database.execute(f"create table every (id int primary key, {columns}); alter table every replica identity full")
    database.execute(f"create table keyed (id int primary key, {columns})")
    inserts = [
        f"insert into {table} (id, c{number}) values ({number}, {literal})"
        for number, (_, literal, _) in enumerate(kinds)
        for table in ("every", "keyed")
    ]
    edge = edges(database, interconnect.url)
    edge.init()
    with decoding(way), edge.running():
        database.execute("; ".join(inserts))
        for statement in ("update {} set id = id + 1000", "update {} set id = id", "delete from {}"):
            database.execute("; ".join(statement.format(table) for table in ("every", "keyed")))
        arrive(interconnect, 8 * len(kinds))

    nulls = {f"c{number}": None for number in range(len(kinds))}
    for number, (_, _, shown) in enumerate(kinds):
        row = nulls | {f"c{number}": shown}
        was, now = {"id": number} | row, {"id": number + 1000} | row
        for table, expected in {
            "every": [(None, was), (was, now), (now, now), (now, None)],
            "keyed": [(None, was), ({"id": number}, now), (None, now), ({"id": number + 1000}, None)],
        }.items():
            changes = [it for it in interconnect.changes if it["source"]["table"] == table and number in ids(it)]
            assert [(it["before"], it["after"]) for it in changes] == expected


def ids(change):
    """The number of the row that a change is of."""
    return [row["id"] % 1000 for row in (change["before"], change["after"]) if row]
