"""Every type of a real server next to every other: a value decoded as its neighbour's type shows in one of them (N1)."""

import itertools
import random
import re

import pytest

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy, schema_records

#: Of both servers: declaration, a value as SQL and as its record has it: values that differ by sign, length and collation.
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
]  # fmt: skip
#: Those of each one. MariaDB has a vector's bytes in its log as it has any others.
OWN_TYPES = {
    "mysql": [("vector(2)", "string_to_vector('[1,-2]')", "[1,-2]")],
    "mariadb": [
        ("vector(2)", "vec_fromtext('[1,-2]')", "AACAPwAAAMA="),
        ("uuid", "'6ccd780c-baba-1026-9564-5b8c65602400'", "6ccd780c-baba-1026-9564-5b8c65602400"),
        ("inet4", "'10.0.0.0'", "10.0.0.0"), ("inet6", "'fe80::'", "fe80::"),
        # As of 11.5.
        ("timestamp(2) null", "'2106-02-07 06:28:15.99'", "2106-02-07T06:28:15.99Z"),
        ("varchar(9) compressed", "'ж'", "ж"), ("varchar(9) collate utf8mb4_uca1400_ai_ci", "'é'", "é"),
        ("varchar(9) character set utf8mb3 collate uca1400_as_cs", "'ñ'", "ñ"),
    ],
}  # fmt: skip
#: Of others, C makes records; a table with one of these is decoded in Python.
NOT_IN_C = "ucs2|sjis|json|vector|inet|compressed"


@pytest.fixture
def types(debian):
    """Return the types of the server."""
    return TYPES + OWN_TYPES[debian.server.kind]


def pairs(types):
    """Yield columns of tables, in which each type is once on the left and once on the right of every type, itself included."""
    for left in range(len(types)):
        yield [types[number] for right in range(left, len(types)) for number in (left, right)] + [types[left]]
    chance = random.Random(9)
    for _ in range(20):
        yield [chance.choice(types) for _ in range(chance.randrange(1, 40))]


@pytest.mark.parametrize("way", ["all", "in C"])
def test_every_type_next_to_every_other_arrives_with_its_own_value(debian_edge, debian, interconnect, types, way):
    """N1."""
    if way == "in C":
        types = [each for each in types if not re.search(NOT_IN_C, each[0])]
    tables = list(pairs(types))
    neighbours = {pair for columns in tables for pair in itertools.pairwise(columns)}
    assert neighbours >= set(itertools.product(types, repeat=2))
    with debian_edge.running():
        for number, columns in enumerate(tables):
            declared = ", ".join(f"c{place} {kind}" for place, (kind, _, _) in enumerate(columns))
            debian.execute(f"create table n{number} (id int primary key, {declared})")
            debian.execute(f"insert into n{number} values (-5, {', '.join(value for _, value, _ in columns)})")
        arrive(interconnect, len(tables), seconds=120)

    for change in interconnect.changes:
        columns = tables[int(change["source"]["table"][1:])]
        assert change["after"] == {"id": -5} | {f"c{place}": value for place, (_, _, value) in enumerate(columns)}


def test_every_type_is_copied_as_the_stream_has_it(debian_edge, debian, interconnect, types):
    """N6: a VECTOR was not."""
    declared = ", ".join(f"c{place} {kind}" for place, (kind, _, _) in enumerate(types))
    debian.execute(f"create table every (id int primary key, {declared})")
    with debian_edge.running():
        debian.execute(f"insert into every values (1, {', '.join(value for _, value, _ in types)})")
        arrive(interconnect, 1)
        copy(debian_edge, f"{debian.name}.every")
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
