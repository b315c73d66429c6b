"""Changes and copied rows in Avro hold what those in JSON hold: two edges of one database, for both engines and profiles.

With Debezium's profile what is compared is what the lake's reader makes of the records, null by null.
"""

import pytest

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy
from tests.integration.mysql.test_mariadb_values import EDGES, TABLE

PROFILES = ("tombstones = true", 'profile = "debezium"')
POSTGRESQL = [
    """create table every (id bigint, part text, i2 int2, i4 int4, f4 float4, f8 float8, n numeric, n2 numeric(12,2), flag bool,
       day date, ti time, tz timetz, ts timestamp, tstz timestamptz, iv interval, by bytea, j json, jb jsonb, u uuid, x text,
       words text[], "odd name" text, big text, primary key (id, part))""",
    "alter table every alter big set storage external",
]
#: Types that have a form of their own in Debezium alone.
FORMS = [
    "create extension hstore; create extension ltree; create type mood as enum ('sad', 'fine')",
    """create table forms (id uuid, day date, money money, bit1 bit(1), bits bit(5), vb varbit(20), p point, q point, hs hstore,
       lt ltree, ti3 time(3), ts3 timestamp(3), ints int[], shorts int2[], reals float8[], blobs bytea[], numbers numeric[],
       prices numeric(6,2)[], days date[], stamps timestamptz[], uuids uuid[], jsons jsonb[], flags bool[], moods mood[],
       mood mood, cash numeric not null, primary key (id, day))""",
    "alter table forms alter blobs set storage external, alter ints set storage external",
]
WORK = [
    r"""insert into every values (1, 'é "x"', -32768, 2147483647, 0.1, 1e300, 'NaN', -12.50, true, 'infinity', '09:15:00.25',
        '09:15+07', '0044-03-15 12:00 BC', '2026-01-31 09:15:00.25+07', '1 mon -1 day', '\x00ff', '{"a" : 1}', '[1]',
        'c0ffee00-0000-4000-8000-000000000001', E'tab\t and\n line', array['a "b"', null], 'odd', repeat('y', 9000))""",
    "insert into every (id, part, f4, f8) values (2, '', 'NaN', '-Infinity'), (3, 'c', 3.4e38, -0.0)",
    "update every set i2 = 7 where id = 1",
    "update every set id = 30, part = 'moved' where id = 3",
    "delete from every where id = 2",
]


OF_FORMS = [
    r"""insert into forms values ('c0ffee00-0000-4000-8000-000000000001', '2026-01-31', '-1234.50', b'1', b'10110', b'101',
        '(1.5,-2)', '(0,0)', 'a=>1, "b \"c"=>NULL', 'top.science', '09:15:00.25', '2026-01-31 09:15:00.123',
        array_fill(7, array[3000]),
        '{1}', '{NaN,0.1}', array[decode(repeat('00ff', 5000), 'hex')], '{1.50,NaN,NULL}', '{1.25,-3.5}', '{2026-01-31}',
        '{2026-01-31 09:15:00+07}', '{c0ffee00-0000-4000-8000-000000000001}', array['{"a": 1}'::jsonb], '{t,f}', '{fine}', 'sad',
        1.50)""",
    "insert into forms (id, day, cash) values ('c0ffee00-0000-4000-8000-000000000002', 'infinity', 'NaN')",
    "update forms set cash = 2, q = null",
    "update forms set day = '2026-02-01' where money is not null",
    "delete from forms where money is null",
]


@pytest.mark.parametrize("profile", PROFILES, ids=["headrace", "debezium"])
def test_of_postgresql(database, edges, interconnects, profile):
    for statement in POSTGRESQL:
        database.execute(statement)
    ends = interconnects(), interconnects()
    both, more = postgresql(database, edges, ends, profile), "debezium" in profile
    # A changed key is two changes then, with a tombstone between them.
    compared(both, ends, lambda: done(database, WORK), "public.every", changes=6 + more, rows=2, tombstones=1 + more)


def test_of_debeziums_forms(database, edges, interconnects):
    for statement in FORMS:
        database.execute(statement)
    ends = interconnects(), interconnects()
    both = postgresql(database, edges, ends, PROFILES[1])
    result = compared(both, ends, lambda: done(database, OF_FORMS), "public.forms", changes=7, rows=1, tombstones=2)
    # what the log does not carry has Debezium's placeholder in Avro too
    changed = next(value for _, value, *_ in result if value and "blobs" in value.get("unchanged", ()))
    assert {"blobs", "ints"} <= set(changed["unchanged"])
    assert changed["after"]["ints"] == list(b"__debezium_unavailable_value")


def test_an_array_of_arrays_is_a_dead_letter_and_the_edge_goes_on(database, edges, interconnect):
    """M2: it stopped the source. With another setting it has a form."""
    database.execute("create table every (id int primary key, ints int[])")
    edge = edges(database, interconnect.url, more='[records]\nprofile = "debezium"\nformat = "avro"')
    edge.init()
    with edge.running() as agent:
        database.execute("insert into every values (1, '{1}'), (2, '{{1,2},{3,4}}'), (3, '{3}')")
        arrive(interconnect, 3)
        assert agent.figures.dead_letters == 1
    edge.path.write_text(edge.path.read_text().replace("[records]", '[records]\ntypes = "headrace"'))
    with edge.running():
        database.execute("update every set ints = '{{5}}' where id = 2")
        arrive(interconnect, 4)
    first, letter, third, fourth = interconnect.changes
    assert [change["after"]["ints"] for change in (first, third, fourth)] == [[1], [3], "{{5}}"]
    assert letter["after"] == {"id": 2}
    assert letter["too_large"]["bytes"] > 0


def postgresql(database, edges, ends, profile):
    own = f"{database.name}_avro"
    return (
        edges(database, ends[0].url, more=f"[records]\n{profile}"),
        edges(database, ends[1].url, more=f'[records]\n{profile}\nformat = "avro"', slot=own, publication=own),
    )


def done(database, work):
    for statement in work:
        database.execute(statement)


@pytest.mark.parametrize("profile", PROFILES, ids=["headrace", "debezium"])
def test_of_mariadb(maria, maria_edges, interconnects, profile):
    maria.execute("set time_zone = '+00:00'")
    maria.execute(TABLE)

    def work():
        for row in EDGES:
            maria.execute(f"insert into every values ({row})")
        maria.execute("update every set t1 = 5, vc = 'changed' where id = 1")
        maria.execute("update every set id = 20 where id = 2")
        maria.execute("delete from every where id = 3")

    ends = interconnects(), interconnects()
    both = [
        maria_edges(maria, end.url, rest=f"[records]\n{profile}\n{form}")
        for end, form in zip(ends, ("", 'format = "avro"'), strict=True)
    ]
    more, rows = "debezium" in profile, len(EDGES)
    compared(both, ends, work, f"{maria.name}.every", changes=rows + 3 + more, rows=rows - 1, tombstones=1 + more)


def compared(edges, ends, work, table, *, changes, rows, tombstones):
    """Have both edges capture some work and a copy, and compare their records; return those in JSON."""
    first, other = edges
    for edge in (first, other):
        edge.init()
    with first.running(), other.running():
        work()
        for edge, end in zip((first, other), ends, strict=True):
            arrive(end, changes)
            copy(edge, table)
            arrive(end, changes + rows)
    plain, in_avro = ([shown(*each) for each in end.records if not each[2] or "op" in each[2]] for end in ends)
    assert len(plain) == changes + rows + tombstones
    assert plain == in_avro
    written = [written for batch, _ in ends[1].arrived for written in batch.written]
    # The log and the catalog describe a table alike.
    assert {(each.schema, each.table, each.value) for each in written} == {(*table.split("."), written[0].value)}
    assert not any(batch.written for batch, _ in ends[0].arrived)
    return plain


#: What differs between two readings of one log.
OF_READING = frozenset({"position", "ts_ms", "ts_us", "ts_ns", "lsn", "txId", "pos", "sequence"})


def shown(_position, key, value):
    """A record without what differs between two readings of one log: when it was read, the epoch, a copy's place."""
    if value is None:
        return key, None
    source = {name: it if name not in OF_READING else it is None for name, it in value["source"].items()}
    copied = value["op"] == "r"
    if value["before"] is not None and "ts_us" not in source:
        # Avro has the columns of which the log has nothing as null.
        value["before"] = {name: it for name, it in value["before"].items() if it is not None}
    rest = {name: it for name, it in value.items() if name not in {"ts_ms", "ts_us", "ts_ns", "source", "transaction"}}
    names = sorted(value), sorted(value["transaction"])
    return key, rest, {} if copied else source | {"at": value["source"]["position"][8:]}, names
