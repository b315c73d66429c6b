"""Every type of a real MariaDB server: the record of the stream against what the server itself selects."""

import base64
import json
import random
from contextlib import contextmanager
from decimal import Decimal

import pymysql
import pytest

from edge.mysql import rows_compiled
from edge.mysql.rows import Table
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy

TABLE = """
create table every (
    id int primary key, t1 tinyint, t1u tinyint unsigned, t2 smallint, t2u smallint unsigned, t3 mediumint,
    t3u mediumint unsigned, t4 int, t4u int(8) unsigned zerofill, t8 bigint, t8u bigint unsigned, small
    decimal(5, 2), big decimal(65, 30), whole decimal(20, 0), part decimal(9, 9), f float, d double, b1 bit,
    b10 bit(10), b64 bit(64), y year, da date, ti time, ti3 time(3), dt datetime, dt1 datetime(1), dt6
    datetime(6), ts timestamp null, ts2 timestamp(2) null, ts6 timestamp(6) null, c char(5), vc varchar(20),
    lvc varchar(300), l1 varchar(20) character set latin1, u2 varchar(20) character set ucs2, k8 char(10)
    character set koi8r, sj varchar(20) character set sjis, tt tinytext, te text, mt mediumtext, lt longtext,
    bin binary(8), vb varbinary(20), bl blob, lb longblob, e enum('a', 'b', 'é"'), s set('x', 'y', 'z'), j
    json, u uuid, i6 inet6, i4 inet4, g point, v8 varchar(20) compressed, bc blob compressed
) default character set utf8mb4
"""
#: As the server itself writes them where that is what a record holds.
TEXTS = {
    "small": "cast(small as char)", "big": "cast(big as char)", "whole": "cast(whole as char)", "part": "cast(part as char)",
    "da": "cast(da as char)", "ti": "cast(ti as char)", "ti3": "cast(ti3 as char)", "c": "c", "vc": "vc", "lvc": "lvc",
    "l1": "convert(l1 using utf8mb4)", "u2": "convert(u2 using utf8mb4)", "k8": "convert(k8 using utf8mb4)",
    "sj": "convert(sj using utf8mb4)", "tt": "tt", "te": "te", "mt": "mt", "lt": "lt", "e": "e", "s": "s", "j": "j",
    "u": "cast(u as char)", "i6": "cast(i6 as char)", "i4": "cast(i4 as char)", "v8": "v8",
    "b1": "bin(b1)", "b10": "lpad(bin(b10), 10, '0')", "b64": "lpad(bin(b64), 64, '0')",
}  # fmt: skip
NUMBERS = ("id", "t1", "t1u", "t2", "t2u", "t3", "t3u", "t4", "t4u", "t8", "t8u", "y")
BYTES = ("bin", "vb", "bl", "lb", "g", "bc")
MOMENTS = ("dt", "dt1", "dt6", "ts", "ts2", "ts6")

EDGES = [
    (
        "1, -128, 255, -32768, 65535, -8388608, 16777215, -2147483648, 4294967295, -9223372036854775808, "
        "18446744073709551615, -999.99, -99999999999999999999999999999999999.999999999999999999999999999999, "
        "99999999999999999999, -0.999999999, -1.5, 1e308, 1, 1023, 18446744073709551615, 2155, '9999-12-31', "
        "'838:59:59', '-838:59:59.999', '9999-12-31 23:59:59', '1000-01-01 00:00:00.9', '2026-01-31 "
        "09:15:00.000001', '2038-01-19 03:14:07', '1970-01-01 00:00:01.99', '2026-01-31 09:15:00.123456', "
        "'abcde', 'a\"b\\\\c\\n', repeat('ü', 300), 'naïve €', 'ünï', 'привет', 'テスト', '', 'text', 'medium', "
        "repeat('long', 30000), x'0100', x'00ff', x'00', repeat(x'ff', 70000), 'é\"', 'x,z', '{\"a\": [1, 2]}', "
        "'6ccd780c-baba-1026-9564-5b8c656024db', 'fe80::1:0', '10.0.0.1', point(1, -2.5), 'packed', x'0102'"
    ),
    (
        "2, 127, 0, 32767, 0, 8388607, 0, 2147483647, 7, 9223372036854775807, 0, 0.01, "
        "0.000000000000000000000000000001, 0, 0, 0, 0, 0, 0, 0, 1901, '1000-01-01', '00:00:00', "
        "'00:00:00.001', '2000-02-29 00:00:00', '2000-02-29 00:00:00', '2000-02-29 00:00:00', '2000-02-29 "
        "00:00:00', '2000-02-29 00:00:00', '2000-02-29 00:00:00', '', '', '', '', '', '', '', repeat('t', "
        "255), repeat('e', 60000), '', '', x'', x'', x'', x'', 'a', '', '1', "
        "'00000000-0000-0000-0000-000000000000', '::', '0.0.0.0', point(0, 0), repeat('z', 20), repeat(x'00',"
        " 3000)"
    ),
    (
        "3, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, "
        "null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, "
        "null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, null, "
        "null, null, null, null, null"
    ),
]


@contextmanager
def images_decoded_in_c(monkeypatch):
    """Note for each rows event whether it was decoded in C."""
    decoded, decode = [], Table._decode_in_c

    def noted(self, *arguments):
        made = decode(self, *arguments)
        decoded.append(made is not None)
        return made

    monkeypatch.setattr(Table, "_decode_in_c", noted)
    yield decoded


@pytest.fixture
def every(maria):
    maria.execute(TABLE)
    maria.execute("set time_zone = '+00:00'")
    return maria


def expected(maria, row_id):
    """Return a row as records hold it, made of the server's own texts."""
    columns = [name for name, *_ in maria.execute("show columns from every")]
    select = ", ".join(TEXTS.get(name, f"cast({name} as char)" if name in MOMENTS else name) for name in columns)
    values = maria.execute(f"select {select} from every where id = %s", [row_id])[0]
    results = {}
    for name, value in zip(columns, values, strict=True):
        if value is None:
            results[name] = None
        elif name in BYTES:
            results[name] = base64.b64encode(value if isinstance(value, bytes) else value.encode("latin1")).decode()
        elif name in MOMENTS:
            results[name] = value.replace(" ", "T") + ("Z" if name.startswith("ts") else "")
        elif name in NUMBERS:
            results[name] = int(value)
        else:
            results[name] = value
    return results


#: Where C decodes all columns but those that it does not know, which are left out.
KNOWN_IN_C = f"""
[[policy.columns]]
columns = [{", ".join(f'"*.every.{name}"' for name in ("u2", "sj", "i6", "i4", "v8", "bc"))}]
action = "exclude"
"""


@pytest.mark.parametrize("way", ["python", *["c"] * (rows_compiled.module is not None)])
def test_every_type_that_c_knows_arrives_as_the_server_selects_it(maria_edges, every, interconnect, monkeypatch, way):
    if way == "python":
        monkeypatch.setattr(rows_compiled, "module", None)
    edge = maria_edges(every, interconnect.url, rest=KNOWN_IN_C)
    edge.init()
    with edge.running() as running, images_decoded_in_c(monkeypatch) as decoded:
        for row in EDGES:
            every.execute(f"insert into every values ({row})")
        every.execute("update every set id = id + 10 order by id desc")
        every.execute("delete from every where id = 11")
        arrive(interconnect, 7)
        assert not running.figures.warned

    assert set(decoded) == {way == "c"}
    rows = [row for change in interconnect.changes for row in (change["before"], change["after"]) if row]
    for row in rows:
        number = row.pop("id") % 10
        every.execute(f"delete from every where id = {number}")
        every.execute(f"insert into every values ({EDGES[number - 1]})")
        wanted = expected(every, number)
        assert row == {name: wanted[name] for name in row}
    assert len(rows) == 10
    assert rows[0].keys() == expected(every, 1).keys() - {"id", "u2", "sj", "i6", "i4", "v8", "bc"}


def test_every_type_arrives_as_the_server_selects_it(maria_edge, every, interconnect):
    with maria_edge.running():
        for row in EDGES:
            every.execute(f"insert into every values ({row})")
        arrive(interconnect, len(EDGES))

    for change in interconnect.changes:
        assert change["after"] == expected(every, change["after"]["id"])
    schema = next(value for _, _, value in interconnect.records if "tableChanges" in value)
    types = {column["name"]: column["typeName"] for column in schema["tableChanges"][0]["table"]["columns"]}
    assert {types[name] for name in ("t8u", "big", "ts6", "u", "i6", "g", "e", "v8", "bc")} == {
        "BIGINT UNSIGNED", "DECIMAL", "TIMESTAMP", "UUID", "INET6", "GEOMETRY", "ENUM", "VARCHAR", "BLOB",
    }  # fmt: skip


def test_numbers_and_times_at_random_arrive_as_the_server_selects_them(maria_edge, every, interconnect):
    chance = random.Random(20261121)
    rows = []
    for number in range(10, 210):
        digits = Decimal(chance.randrange(-(10**64), 10**64)).scaleb(-30)
        moment = f"{chance.randrange(1970, 2037)}-{chance.randrange(1, 13):02}-{chance.randrange(1, 29):02}"
        clock = f"{chance.randrange(24):02}:{chance.randrange(60):02}:{chance.randrange(60):02}.{chance.randrange(10**6):06}"
        rows.append(
            f"({number}, {digits}, {chance.randrange(-99999, 99999) / 100}, {chance.uniform(-1e6, 1e6)!r},"
            f" {chance.uniform(-1e6, 1e6):.6g}, '{moment} {clock}', '{moment} {clock}',"
            f" '{chance.choice(['', '-'])}{chance.randrange(839)}:{chance.randrange(60):02}:00.5',"
            f" {chance.randrange(2**10)}, uuid(), uuid(), '{chance.randrange(2**16):x}::{chance.randrange(2**16):x}')"
        )
    with maria_edge.running():
        columns = "id, big, small, d, f, dt6, ts6, ti3, b10, u, te, i6"
        every.execute(f"insert into every ({columns}) values {', '.join(rows)}")
        arrive(interconnect, len(rows))

    for change in interconnect.changes:
        wanted = expected(every, change["after"]["id"])
        assert change["after"] == wanted


def test_zero_dates_keep_the_servers_text(maria_edge, every, interconnect):
    with maria_edge.running():
        every.execute("set sql_mode = ''")
        every.execute("insert into every (id, da, dt, dt6, ts, ts6, y) values (1, 0, 0, '2026-00-00', 0, 0, 0)")
        every.execute("insert into every (id, e) values (2, 'no member')")
        arrive(interconnect, 2)

    row = interconnect.changes[0]["after"]
    assert [row[name] for name in ("da", "dt", "dt6", "ts", "ts6", "y")] == [
        "0000-00-00", "0000-00-00 00:00:00", "2026-00-00 00:00:00.000000", "0000-00-00 00:00:00", "0000-00-00 00:00:00.000000", 0,
    ]  # fmt: skip
    assert interconnect.changes[1]["after"]["e"] == ""


def test_zero_dates_are_null_where_that_is_asked_for(maria_edges, every, interconnect):
    edge = maria_edges(every, interconnect.url, more='zero_dates = "null"')
    edge.init()
    with edge.running():
        every.execute("set sql_mode = ''")
        every.execute("insert into every (id, da, dt, dt6, ts, ts6) values (1, 0, 0, '2026-01-00', 0, 0)")
        every.execute("insert into every (id, da, dt6) values (2, '2026-01-31', '2026-01-31 09:15:00.5')")
        arrive(interconnect, 2)

    zero, usual = (change["after"] for change in interconnect.changes)
    assert [zero[name] for name in ("da", "dt", "dt6", "ts", "ts6")] == [None] * 5
    assert (usual["da"], usual["dt6"]) == ("2026-01-31", "2026-01-31T09:15:00.500000")


def test_names_that_need_quoting_and_tables_without_key(maria_edge, maria, interconnect):
    with maria_edge.running():
        maria.execute('create table `odd "table` (`a "%s` int, `größe` text)')
        maria.execute('insert into `odd "table` values (1, %s)', ["50 % of 'it'"])
        arrive(interconnect, 1)

    (position, key, value) = interconnect.records[-1]
    assert (key, value["after"]) == (None, {'a "%s': 1, "größe": "50 % of 'it'"})
    assert value["source"]["table"] == 'odd "table'
    assert json.dumps(str(position)) in json.dumps(value)


def test_more_patterns_of_nulls_than_get_a_function_of_their_own(maria_edge, maria, interconnect):
    maria.execute("create table wide (id int primary key, " + ", ".join(f"c{n} int, t{n} text" for n in range(8)) + ")")
    chance = random.Random(3)
    rows = [[number, *(chance.choice([None, column]) for column in range(16))] for number in range(500)]
    with maria_edge.running():
        places = ", ".join(["(" + ", ".join(["%s"] * 17) + ")"] * len(rows))
        maria.execute(f"insert into wide values {places}", [value for row in rows for value in row])
        arrive(interconnect, len(rows))

    changes = [list(change["after"].values()) for change in interconnect.changes]
    assert [[value if value is None else int(value) for value in row] for row in changes] == rows


def test_names_of_as_many_characters_as_the_server_takes(maria_edge, maria, interconnect):
    """64 of three bytes in UTF-8; the server has none of four in names."""
    with pytest.raises(pymysql.MySQLError, match=r"Invalid utf8mb[34]"):
        maria.execute(f"create table t2 (`{'😀' * 64}` int)")
    table, column = "表" * 50, "é语" * 32
    with maria_edge.running():
        maria.execute(f"create table `{table}` (`{column}` int primary key, note text)")
        maria.execute(f"insert into `{table}` values (1, 'streamed')")
        arrive(interconnect, 1)
        copy(maria_edge, f"{maria.name}.{table}")
        arrive(interconnect, 2)

    assert [change["op"] for change in interconnect.changes] == ["c", "r"]
    assert {change["source"]["table"] for change in interconnect.changes} == {table}
    assert [change["after"] for change in interconnect.changes] == [{column: 1, "note": "streamed"}] * 2
