"""Texts of real servers: each byte of a character set as the server reads it, and bytes that are no characters."""

import pytest

from edge.mysql import column_text
from tests.edge.fix_edge import arrive
from tests.integration.edge.snapshots import copy

SINGLE = sorted(
    name for name in column_text.list_names() - column_text.UTF8 - {column_text.BINARY} if column_text.width(name) == 1
)
PAIRS = [bytes([first, second]) for first in range(0x81, 0xFF) for second in range(0x40, 0xFF)]


@pytest.fixture(params=["mysql97", "mariadb118", "maria"])
def database(request):
    """Return a database of each server."""
    return request.getfixturevalue(request.param)


def read(database, name, values):
    """Return what the server reads in values of a character set, without those that it has no character for."""
    texts = {}
    for at in range(0, len(values), 2000):
        part = values[at : at + 2000]
        selected = ", ".join(f"convert(convert(x'{value.hex()}' using {name}) using utf8mb4)" for value in part)
        texts.update(zip(part, database.execute(f"select {selected}")[0], strict=True))
    return {value: text for value, text in texts.items() if text and "?" not in text and "\ufffd" not in text}


@pytest.mark.parametrize("name", SINGLE)
def test_every_byte_is_the_character_that_the_server_reads(database, name):
    """N7, and its siblings."""
    texts = read(database, name, [bytes([number]) for number in range(1, 256)])

    codec = column_text.decoder(name, "t.c")
    assert len(texts) > 150
    assert {value: value.decode(codec) for value in texts} == texts


@pytest.mark.parametrize("name", ["sjis", "cp932", "euckr", "gbk", "gb2312"])
def test_every_pair_of_bytes_is_the_character_that_the_server_reads(database, name):
    """N7: sjis 0x815F."""
    texts = read(database, name, PAIRS)

    codec = column_text.decoder(name, "t.c")
    assert len(texts) > 5000
    assert {value: value.decode(codec, "replace") for value in texts} == texts


def test_bytes_that_are_no_characters_stop_nothing(database, maria_edges, interconnect):
    """M2: the source stopped for good at a cp1251 0x98; stream and copy have the same in its place."""
    database.execute("create table odd (id int primary key, note varchar(20) character set cp1251, name varchar(20))")
    edge = maria_edges(database, interconnect.url)
    edge.init()
    with edge.running() as agent:
        database.execute("insert into odd values (1, _cp1251 x'd098', 'Ana'), (2, _cp1251 x'e6', 'Budi')")
        arrive(interconnect, 2)
        copy(edge, f"{database.name}.odd")
        arrive(interconnect, 4)
        assert [words for words in agent.figures.warnings if f"column {database.name}.odd.note holds bytes" in words]

    rows = [(change["op"], change["after"]["note"], change["after"]["name"]) for change in interconnect.changes]
    assert rows == [("c", "\u0420\ufffd", "Ana"), ("c", "ж", "Budi"), ("r", "\u0420\ufffd", "Ana"), ("r", "ж", "Budi")]
