"""Tables with versions, whose records are what a plain select would see change, and with generated columns, which none has."""

import json
import struct

import pytest

from edge.mysql.values import TIMESTAMP2
from headrace.errors import CorruptInput, NeedsOperator
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


WIDE = tuple(Column(f"c{number}", 3, unsigned=False) for number in range(11))
LACKING = {1, 9}
#: A row, of all its columns and without two of them, and the log's bits for those that are there.
VALUES = {f"c{number}": None if number in (3, 10) else number * 11 for number in range(11) if number not in LACKING}


def wide(*without, nulls):
    bits = nulls.to_bytes((11 - len(without) + 7) // 8, "little")
    written = [number for number in range(11) if number not in without and number not in (3, 10)]
    return bits + b"".join(struct.pack("<i", number * 11) for number in written)


def present(*without):
    return ((1 << 11) - 1 - sum(1 << number for number in without) | 0xF800).to_bytes(2, "little")


def test_generated_columns_that_updates_and_deletes_lack_are_in_no_record():
    decoder, batcher = make_decoder("mariadb", generated=["c1", "c9"])
    image = wide(*LACKING, nulls=1 << 2 | 1 << 8)

    feed(decoder, rotate(), mariadb_gtid(1, 200), table_map(*WIDE, nullable=b"\xfe\x07"))
    feed(decoder, rows(23, 11, wide(nulls=1 << 3 | 1 << 10)))
    feed(decoder, rows(24, 11, image * 4, present=present(*LACKING)), rows(25, 11, image, present=present(*LACKING)))
    # As an older server of the same source has them.
    feed(decoder, rows(25, 11, wide(nulls=1 << 3 | 1 << 10)), xid(500))

    ends = [("d", VALUES, None)] * 2
    assert reported(batcher) == [("c", None, VALUES), ("u", VALUES, VALUES), ("u", VALUES, VALUES), *ends]


@pytest.mark.parametrize("without", [(), (1, 2), (9,)])
def test_images_that_lack_other_columns_than_the_generated_ones_are_refused(without):
    decoder, _ = make_decoder("mariadb", generated=["c1", "c9"] if without else ["c1"])
    lacking = present(*(without or (1, 9)))

    feed(decoder, rotate(), mariadb_gtid(1, 200), table_map(*WIDE, nullable=b"\xfe\x07"))
    with pytest.raises(NeedsOperator, match="the log lacks columns"):
        feed(decoder, rows(25, 11, b"\0" * 40, present=lacking))


@pytest.mark.parametrize("cut", range(1, 30))
def test_images_without_generated_columns_that_are_cut_short_are_corrupt(cut):
    decoder, _ = make_decoder("mariadb", generated=["c1", "c9"])
    image = wide(*LACKING, nulls=1 << 2 | 1 << 8)

    feed(decoder, rotate(), mariadb_gtid(1, 200), table_map(*WIDE, nullable=b"\xfe\x07"))
    with pytest.raises(CorruptInput):
        feed(decoder, rows(25, 11, image[:-cut], present=present(*LACKING)))
