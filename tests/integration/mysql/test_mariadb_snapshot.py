"""The copy of existing rows beside a binlog: the same bytes as the log's, every row once, by keys of every kind."""

import json
import random
import shutil
import struct

from edge.engine import Adoption
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy, raw, records, schema_records
from tests.integration.mysql.test_mariadb_values import EDGES, TABLE
from tests.rules.waiting import eventually

#: Besides the types of that table.
MORE = """
create table more (
    id bigint unsigned primary key, z1 tinyint zerofill, z8 bigint(20) unsigned zerofill, zd decimal(8, 3) zerofill,
    f72 float(7, 2), d73 double(7, 3), bz bit(33), y2 year, en enum('no', 'yes', 'mañana') character set latin1,
    st set('a b', 'c''d', 'ü') character set latin1, le longtext character set utf16, vb varbinary(300),
    c255 char(255), pg polygon, gc geometrycollection, j json, hidden int invisible,
    g int as (id + 1) virtual, h varchar(40) as (concat('n', id)) stored, ts timestamp(3) null
) default character set utf8mb4
"""
#: The server's form of `polygon((0 0, 1 0, 1 1, 0 0))`, with an SRID of 4326.
POLYGON = struct.pack("<IBIII8d", 4326, 1, 3, 1, 4, 0, 0, 1, 0, 1, 1, 0, 0)


def random_every(chance, number):
    def anything(digits):
        return chance.uniform(-1, 1) * 10 ** chance.randrange(-digits, digits)

    return (
        number,
        anything(30),
        anything(300),
        str(chance.randrange(-(10**60), 10**60)) + ".5",
        chance.uniform(1, 2**31),
        chance.uniform(1, 2**31),
        chance.uniform(-3e6, 3e6),
        f"::ffff:{chance.randrange(256)}.1.2.{number}" if number % 2 else f"{number:x}::",
        "x" * number,
        "é€"[number % 2],
    )


def random_more(chance, number):
    text = "".join(chance.choice("aä'\"\\\n\t\0%€😀") for _ in range(chance.randrange(40)))
    plain = text.replace("😀", "").replace("ä", "a")
    return (
        number,
        chance.randrange(256),
        chance.choice([None, chance.randrange(2**64)]),
        chance.choice([None, chance.randrange(10**8) / 1000]),
        chance.choice([None, -0.0, chance.uniform(-1e4, 1e4)]),
        chance.choice([None, chance.uniform(-1e3, 1e3)]),
        chance.choice([None, chance.randrange(2**33)]),
        chance.choice([None, 0, 1901, 2155]),
        chance.choice([None, "no", "mañana", "bad"]),
        chance.choice([None, "", "a b,ü", "c'd"]),
        chance.choice([None, text]),
        chance.choice([None, bytes(chance.randrange(256) for _ in range(chance.randrange(300)))]),
        chance.choice([None, plain + "  "]),
        chance.choice([None, json.dumps({"k": text, "n": [1, 2.5, None]})]),
        chance.choice([None, -5]),
        chance.choice([None, "0000-00-00 00:00:00", "2026-01-31 09:15:00.125"]),
        POLYGON if number % 2 else None,
    )


def test_a_row_has_the_same_bytes_by_snapshot_and_by_stream(maria_edge, maria, interconnect):
    chance = random.Random(3)
    with maria_edge.running():
        maria.execute("set sql_mode = '', time_zone = '+00:00'")
        maria.execute(TABLE)
        maria.execute(MORE)
        for row in EDGES:
            maria.execute(f"insert into every values ({row})")
        maria.execute(
            "insert into every (id, da, dt, dt6, ts, ts6, y, e) values (4, 0, 0, '2026-00-00', 0, 0, 0, 'bad')"
        )
        for number in range(5, 150):
            maria.execute(
                "insert into every (id, f, d, big, dt6, ts6, ti3, u, i6, te, l1) values (%s, %s, %s, %s, from_unixtime(%s),"
                " from_unixtime(%s), sec_to_time(%s), uuid(), %s, %s, %s)",
                random_every(chance, number),
            )
            maria.execute(
                "insert into more (id, z1, z8, zd, f72, d73, bz, y2, en, st, le, vb, c255, j, hidden, ts, pg)"
                " values (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
                random_more(chance, 1000 + number),
            )
        maria.execute("update every set te = concat(te, 'é') where id > 4 and id % 2")
        eventually(lambda: len(interconnect.changes) == 4 + 145 * 2 + 73, saying="all arrive")
        tables = copy(maria_edge, f"{maria.name}.every", f"{maria.name}.more")

    reported = [value["source"]["table"] for value in schema_records(interconnect)]
    streamed = dict(raw(interconnect, b"c") + raw(interconnect, b"u"))
    copied = dict(raw(interconnect, b"r"))
    assert {table.state for table in tables.values()} == {"done"}
    assert len(copied) == 4 + 145 * 2
    assert {key: row for key, row in copied.items() if row != streamed[key]} == {}
    # What the catalog says of a table equals what the log says of it, so nothing is announced anew.
    assert sorted(reported) == ["every", "more"]


KEYS = [
    ("a varchar(60) primary key", "concat(elt(1 + seq % 7, 'a', 'B', 'ä', 'Z', '_', '''', '\\\\'), seq)"),
    (
        "a varchar(60) character set latin1 collate latin1_german2_ci primary key",
        "concat(elt(1 + seq % 3, 'ß', 'ü', 'é'), seq)",
    ),
    ("a char(20) collate utf8mb4_bin primary key", "concat(elt(1 + seq % 3, 'a', 'B', '😀'), seq)"),
    ("a varbinary(40) primary key", "unhex(md5(seq))"),
    ("a text, primary key (a(20))", "concat('same beginning ', seq)"),
    ("a uuid primary key", "uuid()"),
    ("a inet6 primary key", "concat(hex(seq % 17), '::', hex(seq))"),
    ("a decimal(20, 6) primary key", "(700e0 - seq) / 7.0"),
    ("a double primary key", "(700e0 - seq) / 7e0"),
    ("a float primary key", "(700e0 - seq) / 7e0"),
    ("a datetime(3) primary key", "'2026-01-01' + interval seq * 1001000 microsecond"),
    ("a time(1) primary key", "sec_to_time((cast(seq as signed) - 700) * 1.5)"),
    ("a bit(40) primary key", "seq * 1000003"),
    ("a bigint unsigned primary key", "18446744073709551615 - seq"),
    ("a enum('z', 'b', 'a'), b int unsigned, primary key (a, b)", "1 + seq % 3, seq"),
    (
        "a varchar(10), b int, c date, primary key (b, a, c)",
        "concat('k', seq % 7), seq % 11, '2026-01-01' + interval seq day",
    ),
    ("a int, b int not null, c int not null, unique bc (b, c), unique c (c)", "null, seq % 5, seq"),
]


def test_any_kind_of_key_leads_through_the_whole_table(maria_edge, maria, interconnect):
    names = [f"k{number}" for number in range(len(KEYS))]
    for name, (columns, values) in zip(names, KEYS, strict=True):
        maria.execute(f"create table {name} ({columns}) default character set utf8mb4")
        maria.execute(f"insert into {name} select {values} from seq_1_to_1300")
    with maria_edge.running():
        tables = copy(maria_edge, *(f"{maria.name}.{name}" for name in names))

    for name, (columns, _) in zip(names, KEYS, strict=True):
        read = [json.dumps(key) for key, _ in records(interconnect, name, "r")]
        assert (tables[f"{maria.name}.{name}"].state, tables[f"{maria.name}.{name}"].problem) == ("done", ""), columns
        assert (len(read), len(set(read))) == (1300, 1300), columns
        assert tables[f"{maria.name}.{name}"].chunks > 1


def test_a_lost_checkpoint_is_made_again_from_the_position_of_a_copied_row(maria_edge, maria, interconnect):
    maria.execute("insert into t select seq, 'a' from seq_1_to_50")
    with maria_edge.running():
        copy(maria_edge, f"{maria.name}.t")
    last = interconnect.records[-1][0]
    shutil.rmtree(maria_edge.folder / "state")

    maria_edge.init(Adoption(last))
    with maria_edge.running():
        copy(maria_edge, f"{maria.name}.t")
        maria.execute("insert into t values (51, 'b')")
        arrive(interconnect, 151)

    positions = [position for position, _, value in interconnect.records if "op" in value]
    assert [value["op"] for _, value in records(interconnect, "t")] == ["c"] * 50 + ["r"] * 100 + ["c"]
    assert positions == sorted(set(positions))


POLICY = """
[policy]
hash_key = "env:SNAPSHOT_HASH_KEY"
exclude_tables = ["*.secret"]
columns = [
    { columns = ["*.p.id"], action = "hash" },
    { columns = ["*.p.n*"], action = "truncate", characters = 2 },
    { columns = ["*.p.gone"], action = "exclude" },
]
"""


def test_copied_rows_obey_policy_and_settings_as_streamed_ones_do(maria_edges, maria, interconnect, monkeypatch):
    monkeypatch.setenv("SNAPSHOT_HASH_KEY", "0123456789abcdef")
    edge = maria_edges(maria, interconnect.url, more='zero_dates = "null"', rest=POLICY)
    edge.init()
    maria.execute(
        "create table p (id int primary key, note text, number decimal(8, 2), nowhere int, gone blob, d date, m datetime)"
    )
    maria.execute("create table secret (id int primary key)")
    maria.execute("set sql_mode = ''")
    maria.execute(
        "insert into p values (1, 'äöü', 12.5, null, 'x', 0, '2026-00-01'), (2, null, -1, 7, null, now(), now())"
    )
    with edge.running():
        arrive(interconnect, 2)
        tables = copy(edge, *(f"{maria.name}.{name}" for name in ("p", "secret")))

    assert raw(interconnect, b"r") == raw(interconnect, b"c")
    assert [value["after"]["note"] for _, value in records(interconnect, "p", "r")] == ["äö", None]
    assert records(interconnect, "p", "r")[0][1]["after"]["m"] is None
    assert "is not captured" in tables[f"{maria.name}.secret"].problem


def test_tables_with_versions_are_told_and_copied_as_a_plain_select_has_them(maria_edge, maria, interconnect):
    columns = "(id int primary key, note text"
    maria.execute(f"create table v {columns}) with system versioning")
    maria.execute(
        f"create table w {columns}, since timestamp(6) generated always as row start, until timestamp(6) generated always as "
        "row end, period for system_time (since, until)) with system versioning"
    )
    with maria_edge.running():
        for name in ("v", "w"):
            maria.execute(f"insert into {name} (id, note) values (1, 'a'), (2, 'b'), (3, 'c')")
            maria.execute(f"update {name} set note = 'x' where id < 3")
            maria.execute(f"update {name} set id = 5 where id = 1")
            maria.execute(f"delete from {name} where id = 2")
            maria.execute(f"replace into {name} (id, note) values (5, 'q')")
            maria.execute(f"delete history from {name}")
        arrive(interconnect, 16)
        copy(maria_edge, f"{maria.name}.v", f"{maria.name}.w")

    for name in ("v", "w"):
        reported = [(value["op"], key["id"]) for op in "cudr" for key, value in records(interconnect, name, op)]
        assert reported == [
            *(("c", 1), ("c", 2), ("c", 3)), *(("u", 1), ("u", 2), ("u", 5), ("u", 5)), ("d", 2), *(("r", 3), ("r", 5)),
        ]  # fmt: skip
        ((_, deleted),) = records(interconnect, name, "d")
        copied = [value["after"] for _, value in records(interconnect, name, "r")]
        assert (deleted["before"], deleted["after"]) == ({"id": 2, "note": "x"}, None)
        assert copied == [{"id": 3, "note": "c"}, {"id": 5, "note": "q"}]
    schemas = [value["tableChanges"][0]["table"] for value in schema_records(interconnect)]
    assert [(it["primaryKeyColumnNames"], [column["name"] for column in it["columns"]]) for it in schemas] == [
        (["id"], ["id", "note"])
    ] * 2


def test_rows_are_not_taken_for_others_whose_acknowledgement_a_kill_has_lost(maria_edge, maria, interconnect):
    maria.execute("create table u (id int primary key)")
    maria.execute("insert into t select seq, 'a' from seq_1_to_500")
    maria.execute("insert into u select seq from seq_1_to_200")
    with maria_edge.running():
        arrive(interconnect, 700)
    before = maria_edge.checkpoint_file.read_bytes()
    with maria_edge.running():
        copy(maria_edge, f"{maria.name}.t")

    # As after a kill that came ahead of the note; somebody gives the table up and asks for another one.
    maria_edge.checkpoint_file.write_bytes(before)
    (maria_edge.folder / "state" / "snapshot.json").unlink()
    with maria_edge.running():
        copy(maria_edge, f"{maria.name}.u")

    assert [key["id"] for key, _ in records(interconnect, "u", "r")] == list(range(1, 201))
