"""Every type of a real MySQL 9.7 next to every other: a value decoded as its neighbour's type shows in one of them (N1)."""

import itertools
import random
import re

import pytest

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy, schema_records

#: Declaration, a value as SQL and as its record has it: values that differ by sign, length and collation.
TYPES = [
    ("tinyint", "-7", -7), ("tinyint unsigned", "250", 250), ("smallint", "-300", -300),
    ("smallint unsigned", "65000", 65000), ("mediumint", "-70000", -70000), ("mediumint unsigned", "16000000", 16000000),
    ("int", "-2000000007", -2000000007), ("int unsigned", "4000000007", 4000000007), ("int(8) unsigned zerofill", "9", 9),
    ("bigint", "-9000000000000000007", -9000000000000000007), ("bigint unsigned", "18000000000000000007", 18000000000000000007),
    ("decimal(5, 2)", "-999.99", "-999.99"), ("decimal(20, 0) unsigned", "99999999999999999999", "99999999999999999999"),
    ("float", "-1.5", -1.5), ("float unsigned", "2.25", 2.25), ("double", "-1e300", -1e300), ("year", "2155", 2155),
    ("bit(1)", "b'1'", "1"), ("bit(17)", "b'10000000000000001'", "10000000000000001"), ("date", "'1000-01-01'", "1000-01-01"),
    ("time", "'-838:59:59'", "-838:59:59"), ("time(4)", "'00:00:00.0001'", "00:00:00.0001"),
    ("datetime", "'9999-12-31 23:59:59'", "9999-12-31T23:59:59"),
    ("datetime(6)", "'1000-01-01 00:00:00.000001'", "1000-01-01T00:00:00.000001"),
    ("timestamp null", "'2038-01-19 03:14:07'", "2038-01-19T03:14:07Z"),
    ("timestamp(3) null", "'1970-01-01 00:00:01.5'", "1970-01-01T00:00:01.500Z"),
    ("char(5)", "'ü'", "ü"), ("varchar(7) character set latin1", "'ß€'", "ß€"), ("char(3) character set ucs2", "'нет'", "нет"),
    ("varchar(300) character set koi8r", "'да'", "да"), ("binary(3)", "x'ff00'", "/wAA"), ("varbinary(9)", "x'00'", "AA=="),
    ("tinytext character set cp1251", "'жук'", "жук"), ("text", "'текст'", "текст"),
    ("longtext character set sjis", "'テ'", "テ"),
    ("tinyblob", "x'01'", "AQ=="), ("blob", "x'02'", "Ag=="), ("longblob", "x'03'", "Aw=="),
    ("enum('a', 'é') character set latin1", "'é'", "é"), ("enum('b', 'c')", "'c'", "c"), ("set('x', 'y', 'z')", "'x,z'", "x,z"),
    ("set('ж', 'я') character set cp1251", "'я'", "я"), ("json", "'[-1]'", "[-1]"),
    ("point", "point(1, 2)", "AAAAAAEBAAAAAAAAAAAA8D8AAAAAAAAAQA=="),
    ("geometry", "point(0, 0)", "AAAAAAEBAAAAAAAAAAAAAAAAAAAAAAAAAA=="),
    ("vector(2)", "string_to_vector('[1,-2]')", "[1,-2]"),
]  # fmt: skip


#: Those of which C makes records; a table with another one is decoded in Python.
IN_C = [number for number, (kind, *_) in enumerate(TYPES) if not re.search("ucs2|sjis|json|vector", kind)]


def pairs(types):
    """Yield columns of tables, in which each type is once on the left and once on the right of every type, itself included."""
    for left in range(len(types)):
        yield [types[number] for right in range(left, len(types)) for number in (left, right)] + [types[left]]
    chance = random.Random(9)
    for _ in range(20):
        yield [chance.choice(types) for _ in range(chance.randrange(1, 40))]


@pytest.mark.parametrize("types", [list(range(len(TYPES))), IN_C], ids=["all", "in C"])
def test_every_type_next_to_every_other_arrives_with_its_own_value(mysql97_edge, mysql97, interconnect, types):
    tables = list(pairs(types))
    neighbours = {pair for columns in tables for pair in itertools.pairwise(columns)}
    assert neighbours >= set(itertools.product(types, repeat=2))
    with mysql97_edge.running():
        for number, columns in enumerate(tables):
            declared = ", ".join(f"c{place} {TYPES[of][0]}" for place, of in enumerate(columns))
            mysql97.execute(f"create table n{number} (id int primary key, {declared})")
            mysql97.execute(f"insert into n{number} values (-5, {', '.join(TYPES[of][1] for of in columns)})")
        arrive(interconnect, len(tables), seconds=120)

    for change in interconnect.changes:
        columns = tables[int(change["source"]["table"][1:])]
        expected = {"id": -5} | {f"c{place}": TYPES[of][2] for place, of in enumerate(columns)}
        assert change["after"] == expected


def test_every_type_is_copied_as_the_stream_has_it(mysql97_edge, mysql97, interconnect):
    """N6: a VECTOR was not."""
    declared = ", ".join(f"c{place} {kind}" for place, (kind, _, _) in enumerate(TYPES))
    mysql97.execute(f"create table every (id int primary key, {declared})")
    with mysql97_edge.running():
        mysql97.execute(f"insert into every values (1, {', '.join(value for _, value, _ in TYPES)})")
        arrive(interconnect, 1)
        copy(mysql97_edge, f"{mysql97.name}.every")
        arrive(interconnect, 2)

    streamed, copied = interconnect.changes
    assert (streamed["op"], copied["op"]) == ("c", "r")
    assert streamed["after"] == copied["after"]
    assert len({str(record["tableChanges"]) for record in schema_records(interconnect)}) == 1


def test_doubles_in_json_are_texts_of_the_server(mysql97_edge, mysql97, interconnect):
    """M13."""
    chance = random.Random(13)
    numbers = [
        1e-5,
        1e15,
        1234567890123456.5,
        -5e-324,
        *(chance.uniform(-1, 1) * 10 ** chance.randrange(-30, 30) for _ in range(500)),
    ]
    mysql97.execute("create table doubles (id int primary key, j json)")
    with mysql97_edge.running():
        for number, double in enumerate(numbers):
            mysql97.execute(f"insert into doubles values ({number}, json_array(cast('{double!r}' as double)))")
        arrive(interconnect, len(numbers))

    texts = dict(mysql97.execute("select id, cast(j as char) from doubles"))
    assert {change["after"]["id"]: change["after"]["j"] for change in interconnect.changes} == texts
