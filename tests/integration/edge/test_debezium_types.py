"""Types of a real PostgreSQL in Debezium's forms: value, placeholder and the form in the schema record."""

from tests.edge.fix_edge import arrive

MADE = "create extension hstore; create extension ltree; create extension citext; create type mood as enum ('calm', 'busy')"
UNAVAILABLE = "__debezium_unavailable_value"
#: (type, literal, what arrives, its form)
COLUMNS = [
    ("numeric(9,2)", "-1234.5", "/h3G", "org.apache.kafka.connect.data.Decimal"),
    ("numeric", "1.500", {"scale": 1, "value": "Dw=="}, "io.debezium.data.VariableScaleDecimal"),
    ("numeric", "'NaN'", None, "io.debezium.data.VariableScaleDecimal"),
    ("date", "'2026-01-31'", 20_484, "io.debezium.time.Date"),
    ("time", "'09:15:00.25'", 33_300_250_000, "io.debezium.time.MicroTime"),
    ("time(3)", "'09:15:00.25'", 33_300_250, "io.debezium.time.Time"),
    ("timestamp(3)", "'1970-01-01 00:00:01.5'", 1500, "io.debezium.time.Timestamp"),
    ("timestamp", "'infinity'", 9_223_372_036_825_200_000, "io.debezium.time.MicroTimestamp"),
    ("timestamptz", "'2026-01-31 09:15:00.25+07'", "2026-01-31T02:15:00.250000Z", "io.debezium.time.ZonedTimestamp"),
    ("timetz", "'09:15:00+07'", "02:15:00Z", "io.debezium.time.ZonedTime"),
    ("interval", "'1 mon -3 days 04:05:06.5'", 2_385_306_500_000, "io.debezium.time.MicroDuration"),
    ("money", "'-1234.5'", "/h3G", "org.apache.kafka.connect.data.Decimal"),
    ("bit", "B'1'", True, "boolean"),
    ("bit(3)", "B'101'", "BQ==", "io.debezium.data.Bits"),
    ("varbit", "B'1000000001'", "AQI=", "io.debezium.data.Bits"),
    ("hstore", "'a=>1, b=>null'", '{"a":"1","b":null}', "io.debezium.data.Json"),
    ("uuid", "'c0ffee00-0000-4000-8000-000000000001'", "c0ffee00-0000-4000-8000-000000000001", "io.debezium.data.Uuid"),
    ("jsonb", """'{"a":1}'""", '{"a": 1}', "io.debezium.data.Json"),
    ("ltree", "'a.b'", "a.b", "io.debezium.data.Ltree"),
    ("tsvector", "'a'", "'a'", "io.debezium.data.Tsvector"),
    ("inet", "'10.0.0.1'", "10.0.0.1", None),
    ("mood", "'busy'", "busy", None),
    ("int[]", "'{1,null,3}'", [1, None, 3], "array<int32>"),
    ("text[]", """array['a "b"', null, '']""", ['a "b"', None, ""], "array<string>"),
    ("numeric(5,2)[]", "'{1.5}'", ["AJY="], "array<org.apache.kafka.connect.data.Decimal>"),
    ("timestamptz[]", "array['2026-01-31 09:00+00'::timestamptz]", ["2026-01-31T09:00:00.000000Z"],
     "array<io.debezium.time.ZonedTimestamp>"),
    ("uuid[]", "array['c0ffee00-0000-4000-8000-000000000001'::uuid]", ["c0ffee00-0000-4000-8000-000000000001"],
     "array<io.debezium.data.Uuid>"),
    ("bytea[]", r"array['\x00ff'::bytea]", ["AP8="], "array<bytes>"),
    ("citext[]", "'{Ab}'", ["Ab"], "array<string>"),
    ("mood[]", "'{busy}'", ["busy"], "array<string>"),
    ("money[]", "'{1.5}'", "{$1.50}", None),
]  # fmt: skip
#: What the log does not carry: (type, in its place).
LARGE = [
    ("text", UNAVAILABLE),
    ("bytea", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="),
    ("text[]", [UNAVAILABLE]),
    ("int[]", list(UNAVAILABLE.encode())),
    ("float8[]", None),
    ("uuid[]", ["b68a35a7-17ad-35b3-af2a-ae46edb4545a"]),
    ("hstore", f'{{"{UNAVAILABLE}":"{UNAVAILABLE}"}}'),
]
FILLED = {
    "text": "repeat(md5(n::text), 90)", "bytea": "convert_to(repeat(md5(n::text), 90), 'utf8')",
    "text[]": "array(select md5(i::text) from generate_series(1, 90) i)", "int[]": "array(select generate_series(1, 2000))",
    "float8[]": "array(select generate_series(1, 1000)::float8)",
    "uuid[]": "array(select gen_random_uuid() from generate_series(1, 200))",
    "hstore": "hstore('a', repeat(md5(n::text), 90))",
}  # fmt: skip


def test_types_arrive_in_debeziums_forms(edges, database, interconnect):
    columns = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(COLUMNS))
    database.execute(MADE)
    database.execute(f"create table every (id int primary key, {columns}); alter table every replica identity full")
    edge = edges(database, interconnect.url, more='[records]\nprofile = "debezium"')
    edge.init()
    with edge.running():
        database.execute(f"insert into every values (1, {', '.join(literal for _, literal, *_ in COLUMNS)})")
        database.execute("update every set id = id")
        database.execute("insert into every (id) values (3)")
        arrive(interconnect, 3)

    row = {f"c{number}": shown for number, (_, _, shown, _) in enumerate(COLUMNS)}
    inserted, updated, empty = interconnect.changes
    assert inserted["after"] == {"id": 1} | row
    assert (updated["op"], updated["before"]) == ("u", {"id": 1} | row)
    assert empty["after"] == {"id": 3} | dict.fromkeys(row)
    described = interconnect.records[0][2]["tableChanges"][0]["table"]["columns"][1:]
    assert [column.get("form") for column in described] == [form for *_, form in COLUMNS]


def test_what_the_log_does_not_carry_has_the_form_of_its_type(edges, database, interconnect):
    columns = ", ".join(f"c{number} {kind}" for number, (kind, _) in enumerate(LARGE))
    external = ", ".join(f"alter c{number} set storage external" for number in range(len(LARGE)))
    database.execute(f"create extension hstore; create table large (id int primary key, n int, {columns})")
    database.execute(f"alter table large {external}")
    edge = edges(database, interconnect.url, more='[records]\nprofile = "debezium"')
    edge.init()
    with edge.running():
        made = ", ".join(FILLED[kind] for kind, _ in LARGE)
        database.execute(f"insert into large select 1, n, {made} from generate_series(1, 1) n")
        database.execute("update large set n = 2")
        arrive(interconnect, 2)

    updated = interconnect.changes[1]
    expected = {f"c{number}": shown for number, (_, shown) in enumerate(LARGE)}
    assert updated["unchanged"] == list(expected)
    assert {name: value for name, value in updated["after"].items() if name in expected} == expected
