"""What the edge and Debezium's connector both capture: a table of every type, and changes of every kind."""

TYPES = """
create extension hstore; create extension ltree; create extension citext;
create type mood as enum ('sad', 'fine');
create domain positive as int check (value > 0);
create table types (
    id int primary key, i2 int2, i4 int4, i8 int8 not null, f4 float4, f8 float8, n numeric, n2 numeric(12, 2) not null,
    money money, flag bool, t text not null, vc varchar(20), c char(5), u uuid, j json, jb jsonb, by bytea, day date,
    ti time, ti3 time(3), tz timetz, ts timestamp, ts3 timestamp(3), tstz timestamptz, iv interval, bit1 bit(1),
       bits bit(5), vb varbit(20),
    point point, box box, ints int[], texts text[], numbers numeric(6, 2)[], days date[], stamps timestamptz[], uuids uuid[],
    inet inet, cidr cidr, mac macaddr, i4r int4range, nr numrange, tsr tstzrange, dr daterange, mood mood, positive positive,
    oid oid, hs hstore, lt ltree, ci citext, tsv tsvector
);
alter table types replica identity full
"""

#: Each is one transaction.
ROWS = [
    """insert into types values (1, 1, 2, 3, 1.5, 0.1, 12.345, 12.30, '12.34', true, 'Łukasz "x"', 'vc', 'c',
       '6f1c3d3e-0000-4000-8000-000000000001', '{"a": 1}', '{"b": [1, 2]}', '\\x00ff10', '2026-01-31',
       '09:15:00.25', '09:15:00.123', '09:15:00.25+07', '2026-01-31 09:15:00.123456', '2026-01-31 09:15:00.123',
       '2026-01-31 09:15:00.25+07', '1 year 2 months 3 days 04:05:06.789', b'1', b'10110', b'101100111', '(1.5,-2)',
       '(1,2),(3,4)',
       '{1,2,null}', '{"a","b c",null}', '{1.25,-3.50}', '{2026-01-31}', '{2026-01-31 09:15:00.25+07}',
       '{6f1c3d3e-0000-4000-8000-000000000001}', '10.1.2.3/8', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,5)', '(1.5,)',
       '[2026-01-31 09:15:00+00,)', '[2026-01-01,2026-02-01)', 'fine', 7, 26, 'a=>1, b=>NULL', 'top.science', 'CiTeXt',
       'fat cats')""",
    "insert into types (id, i8, n2, t) values (2, 0, 0, '')",
    """insert into types (id, i2, i4, i8, f4, f8, n, n2, money, t, day, ti, ts, tstz, iv, bits, ints, hs)
       values (3, -32768, -2147483648, -9223372036854775808, '-Infinity', 'Infinity', -1e30, -9999999999.99,
       '-92233720368547758.08',
               'x', '0001-01-01', '00:00', '0001-01-01 00:00:00', '0001-01-01 00:00:00+00',
       '-1 year -2 days -00:00:00.000001', b'00000', '{}', '')""",
    """insert into types (id, i2, i4, i8, f4, f8, n, n2, money, t, day, ti, ts, tstz, iv, bits, ints)
       values (4, 32767, 2147483647, 9223372036854775807, 'NaN', 'NaN', 1e-20, 9999999999.99, '92233720368547758.07', 'x',
               '9999-12-31', '23:59:59.999999', '9999-12-31 23:59:59.999999', '9999-12-31 23:59:59.999999+00',
       '178000 years', b'11111', '{{1,2},{3,4}}')""",
    "insert into types (id, i8, n2, t, n) values (5, 0, 0, '', 'NaN')",
    "insert into types (id, i8, n2, t, day, ts, tstz) values (6, 0, 0, '', 'infinity', '-infinity', 'infinity')",
    "update types set t = 'changed', n = null where id = 1",
    "delete from types where id = 2",
]
TABLES = """
create table accounts (id int primary key, owner text not null, note text);
create table pairs (a int, b text, c text, primary key (a, b));
create table keyless (a int, b text);
create table large (id int primary key, big text, tags text[], n int);
alter table large alter column big set storage external, alter column tags set storage external
"""
WORK = [
    "insert into accounts select n, 'owner ' || n, null from generate_series(1, 3) n",
    """begin; insert into accounts values (4, 'four', 'x'); insert into pairs values (1, 'one', 'c');
       update accounts set note = 'y' where id = 1; commit""",
    "update accounts set note = 'z' where id in (2, 3)",
    "update accounts set id = 10 where id = 1",
    "update pairs set b = 'eins', c = null",
    "delete from accounts where id = 2",
    "delete from pairs",
    "insert into keyless values (1, 'a'), (null, null)",
    "insert into large values (1, repeat('x', 5000), array[repeat('t', 5000)], 1)",
    "update large set n = 2",
    "update large set big = 'short'",
    "update large set id = 2",
    "alter table accounts add column later int default 7",
    "insert into accounts values (20, 'after the change', null, null)",
    "truncate pairs",
]
#: How many records Debezium writes of the work for each table, tombstones included.
COUNTS = {"accounts": 13, "pairs": 6, "keyless": 2, "large": 6}
