"""Tables with versions: what is recorded of their rows is what a plain select would see change."""

import json
import struct

import pytest

from edge.mysql.values import TIMESTAMP2
from tests.unit.edge.mysql.events import Column, feed, make_decoder, mariadb_gtid, rotate, rows, table_map, xid

ID = Column("id", 3, unsigned=False)


def described(start="row_start", end="row_end"):
    columns = ID, Column(start, TIMESTAMP2, b"\6"), Column(end, TIMESTAMP2, b"\6")
    return table_map(*columns, key=(0, 2), nullable=b"\0")


def moment(seconds, micros):
    return struct.pack(">I", seconds) + micros.to_bytes(3, "big")


NOW, SIGNED, UNSIGNED = moment(1_769_850_900, 5), moment(0x7FFFFFFF, 999_999), moment(0xFFFFFFFF, 999_999)


def row(number, end):
    return b"\0" + struct.pack("<i", number) + NOW + end


def reported(batcher):
    values = [json.loads(value) for value in batcher.values if b'"op":' in value]
    return [(change["op"], change["before"], change["after"]) for change in values]


@pytest.mark.parametrize("last", [SIGNED, UNSIGNED])
@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (("row_start", "row_end"), {"id": "int"}),
        (("since", "until"), {"id": "int", "since": "row start", "until": "row end"}),
    ],
)
def test_former_rows_are_left_out_and_rows_that_end_are_deleted(last, names, kinds):
    decoder, batcher = make_decoder("mariadb", kinds=kinds)
    ends = row(2, last) + row(2, NOW)

    feed(
        decoder,
        rotate(),
        mariadb_gtid(1, 200),
        described(*names),
        rows(23, 3, row(1, last) + row(9, NOW) + row(2, last)),
    )
    feed(
        decoder,
        rows(24, 3, row(1, last) + row(4, last) + ends + row(9, NOW) + row(9, NOW) + row(4, last) + row(5, last)),
    )
    feed(decoder, rows(25, 3, row(9, NOW) + row(5, last)), rows(25, 3, row(9, NOW)), xid(500))

    first, two, four, five = ({"id": number} for number in (1, 2, 4, 5))
    assert reported(batcher) == [
        ("c", None, first), ("c", None, two), ("u", first, four), ("d", two, None), ("u", four, five), ("d", five, None),
    ]  # fmt: skip
    assert batcher.keys == [
        None,
        *(json.dumps(key).replace(" ", "").encode() for key in (first, two, four, two, five, five)),
    ]
    schema = json.loads(batcher.values[0])["tableChanges"][0]["table"]
    assert ([column["name"] for column in schema["columns"]], schema["primaryKeyColumnNames"]) == (["id"], ["id"])
    positions = [json.loads(value)["source"]["position"][-8:] for value in batcher.values[1:]]
    assert positions == [f"{number:08x}" for number in range(6)]


def test_columns_that_the_catalog_lists_as_others_are_no_period():
    kinds = {"id": "int", "row_start": "timestamp", "row_end": "timestamp"}
    decoder, batcher = make_decoder("mariadb", kinds=kinds)

    feed(decoder, rotate(), mariadb_gtid(1, 200), described(), rows(23, 3, row(1, NOW)), xid(500))

    ((_, _, after),) = reported(batcher)
    assert after == {
        "id": 1, "row_start": "2026-01-31T09:15:00.000005Z", "row_end": "2026-01-31T09:15:00.000005Z",
    }  # fmt: skip
