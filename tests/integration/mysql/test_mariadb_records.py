"""Records beside a binlog's changes, and rows too large for one, streamed and copied."""

import hashlib

from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import as_letters, copy, open_letters, records, replay
from tests.rules.waiting import eventually

RECORDS = """
[records]
tombstones = true
transactions = true
largest_megabytes = 1
"""


def kinds(interconnect):
    def kind(value):
        if value is None:
            return "tombstone"
        return value.get("op") or value.get("status") or ("mark" if "transaction" in value else "schema")

    return [kind(value) for _, _, value in interconnect.records]


def test_what_is_asked_for_stands_beside_changes_and_dead_letters_in_their_place(maria_edges, maria, interconnect):
    edge = maria_edges(maria, interconnect.url, rest=RECORDS)
    edge.init()
    with edge.running() as running:
        maria.execute("alter table t modify note longtext")
        maria.execute("insert into t values (1, 'a'), (2, repeat('x', 1100000))")
        maria.execute("delete from t where id = 1")
        arrive(interconnect, 3)
        eventually(lambda: kinds(interconnect)[-1] == "END", saying="the transaction's end arrives")
        copy(edge, f"{maria.name}.t")
        assert running.figures.dead_letters == 2

    assert kinds(interconnect) == [
        "BEGIN", "schema", "c", "c", "END", "BEGIN", "d", "tombstone", "END",
        "BEGIN", "mark", "END", "BEGIN", "r", "END", "BEGIN", "mark", "END",
    ]  # fmt: skip
    row = b'{"id":2,"note":"' + b"x" * 1_100_000 + b'"}'
    for op, key in (("c", -1), ("r", 0)):
        letter = records(interconnect, "t", op)[key][1]
        assert (letter["after"], letter["unchanged"]) == ({"id": 2}, ["note"])
        assert letter["too_large"]["sha256"] == hashlib.sha256(row).hexdigest()

    # And with a higher limit their rows come again, by their keys.
    assert [letter["op"] for letter in open_letters(interconnect)] == ["c", "r"]
    edge.path.write_text(edge.path.read_text().replace("largest_megabytes = 1", "largest_megabytes = 2"))
    with edge.running():
        replay(edge, open_letters(interconnect))
        arrive(interconnect, 5)
    assert interconnect.changes[-1]["after"] == {"id": 2, "note": "x" * 1_100_000}
    assert open_letters(interconnect) == []


def test_rows_come_again_by_keys_of_every_kind(maria_edge, maria, interconnect):
    columns = {
        "i": "bigint unsigned", "de": "decimal(9, 2)", "v": "varchar(40) character set latin1", "b": "binary(4)",
        "e": "enum('no', 'mañana') character set latin1", "s": "set('a', 'ü')", "ts": "timestamp(3)", "dt": "datetime",
        "f": "float", "bt": "bit(5)", "u": "uuid", "y": "year", "ti": "time", "da": "date",
    }  # fmt: skip
    rows = [
        f"({number}, -1.50, 'q''ü\\\\{number}', x'00ff27', 'mañana', 'a,ü', '2026-01-31 09:15:00.125', '2026-01-31 09:15:00',"
        f" 0.1, b'101', uuid(), 2026, '-10:00:00', '2026-01-31')"
        for number in (18446744073709551615, 7, 8)
    ]
    with maria_edge.running():
        defined = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        maria.execute(f"create table k ({defined}, primary key ({', '.join(columns)}))")
        maria.execute("set time_zone = '+00:00'")
        maria.execute(f"insert into k values {', '.join(rows)}")
        arrive(interconnect, 3)
        replay(maria_edge, as_letters(interconnect, "k")[:2])
        arrive(interconnect, 5)

    assert [value["after"] for _, value in records(interconnect, "k", "r")] == [
        value["after"] for _, value in sorted(records(interconnect, "k", "c")[:2], key=lambda it: it[0]["i"])
    ]
