"""Records beside a binlog's changes, and rows too large for one, streamed and copied."""

import hashlib

from tests.fix_edge import arrive
from tests.integration.snapshots import copy, records
from tests.waiting import eventually

RECORDS = """
[records]
tombstones = true
transactions = true
largest_megabytes = 1
on_too_large = "dead-letter"
"""


def kinds(interconnect):
    return [
        "tombstone" if value is None else value.get("op") or value.get("status") or "schema"
        for _, _, value in interconnect.records
    ]


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
        "BEGIN", "schema", "c", "c", "END", "BEGIN", "d", "tombstone", "END", "BEGIN", "r", "END",
    ]  # fmt: skip
    row = b'{"id":2,"note":"' + b"x" * 1_100_000 + b'"}'
    for op, key in (("c", -1), ("r", 0)):
        letter = records(interconnect, "t", op)[key][1]
        assert (letter["after"], letter["unchanged"]) == ({"id": 2}, ["note"])
        assert letter["too_large"]["sha256"] == hashlib.sha256(row).hexdigest()
