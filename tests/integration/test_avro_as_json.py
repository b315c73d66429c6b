"""Changes and copied rows in Avro hold what those in JSON hold: two edges of one database, for both engines."""

from tests.fix_edge import arrive
from tests.integration.snapshots import copy
from tests.integration.test_mariadb_values import EDGES, TABLE

AVRO = '[records]\nformat = "avro"\ntombstones = true'
JSON = "[records]\ntombstones = true"
POSTGRESQL = [
    """create table every (id bigint, part text, i2 int2, i4 int4, f4 float4, f8 float8, n numeric, n2 numeric(12,2), flag bool,
       day date, ti time, tz timetz, ts timestamp, tstz timestamptz, iv interval, by bytea, j json, jb jsonb, u uuid, x text,
       words text[], "odd name" text, big text, primary key (id, part))""",
    "alter table every alter big set storage external",
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


def test_of_postgresql(database, edges, interconnects):
    for statement in POSTGRESQL:
        database.execute(statement)
    ends = interconnects(), interconnects()
    own = f"{database.name}_avro"
    one, other = (
        edges(database, ends[0].url, more=JSON),
        edges(database, ends[1].url, more=AVRO, slot=own, publication=own),
    )
    compared(one, other, ends, lambda: [database.execute(statement) for statement in WORK], "public.every", 6, 2)


def test_of_mariadb(maria, maria_edges, interconnects):
    maria.execute("set time_zone = '+00:00'")
    maria.execute(TABLE)

    def work():
        for row in EDGES:
            maria.execute(f"insert into every values ({row})")
        maria.execute("update every set t1 = 5, vc = 'changed' where id = 1")
        maria.execute("update every set id = 20 where id = 2")
        maria.execute("delete from every where id = 3")

    ends = interconnects(), interconnects()
    one, other = (maria_edges(maria, end.url, rest=rest) for end, rest in zip(ends, (JSON, AVRO), strict=True))
    compared(one, other, ends, work, f"{maria.name}.every", len(EDGES) + 3, len(EDGES) - 1)


def compared(one, other, ends, work, table, changes, rows):
    for edge in (one, other):
        edge.init()
    with one.running(), other.running():
        work()
        for edge, end in zip((one, other), ends, strict=True):
            arrive(end, changes)
            copy(edge, table)
            arrive(end, changes + rows)
    plain, in_avro = ([shown(*each) for each in end.records if not each[2] or "op" in each[2]] for end in ends)
    assert len(plain) == changes + rows + 1
    assert plain == in_avro
    written = [written for batch, _ in ends[1].arrived for written in batch.written]
    assert {(each.schema, each.table) for each in written} == {tuple(table.split("."))}
    assert not any(batch.written for batch, _ in ends[0].arrived)


def shown(_position, key, value):
    """A record without what differs between two readings of one log: when it was read, the epoch, a copy's place."""
    if value is None:
        return key, None
    source = {
        name: it for name, it in value["source"].items() if name not in {"position", "ts_ms", "lsn", "txId", "pos"}
    }
    copied = value["op"] == "r"
    if value["before"] is not None:
        # Avro has the columns of which the log has nothing as null.
        value["before"] = {name: it for name, it in value["before"].items() if it is not None}
    rest = {name: it for name, it in value.items() if name not in {"ts_ms", "source", "transaction"}}
    return key, rest, {} if copied else source | {"at": value["source"]["position"][8:]}
