"""T11: schema records give the lengths of texts as declared, in characters; the log has them in bytes."""

import json

import pytest

from tests.unit.edge.mysql.events import (
    CHARSETS,
    Column,
    feed,
    make_decoder,
    mysql_gtid,
    query,
    rotate,
    rows,
    table_map,
    xid,
)

BY_NAME = {name: number for number, name in CHARSETS.items()}


@pytest.mark.parametrize(
    ("charset", "octets", "characters"), [("utf8mb4", 80, 20), ("latin1", 80, 80), ("binary", 80, 80)]
)
def test_the_length_of_a_varchar_is_in_characters(charset, octets, characters):
    decoder, batcher = make_decoder()
    columns = Column("id", 3, unsigned=False), Column("v", 15, bytes([octets, 0]), collation=BY_NAME[charset])
    feed(
        decoder,
        rotate(),
        mysql_gtid(1, 200),
        query("BEGIN", 250),
        table_map(*columns),
        rows(30, 2, b"\0\1\0\0\0\1a"),
        xid(500),
    )
    column = json.loads(batcher.values[0])["tableChanges"][0]["table"]["columns"][1]
    assert (column["name"], column["length"]) == ("v", characters)
