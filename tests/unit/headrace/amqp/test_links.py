"""The sections of a message: what Proton encodes is read as it is, and what would cost more than it holds is refused unread."""

import time
from uuid import UUID

import pytest
from proton import byte, char, int32, symbol, timestamp, ubyte, uint, ulong, ushort

from headrace.amqp.links import OURS, read_sections
from headrace.amqp.transport import Message
from headrace.errors import CorruptInput
from tests.hostile.peers import BODY, MESSAGES, large, listing, mapping, nested, text

VALUES = {
    "none": None, "true": True, "false": False, "text": "ü", "long text": "x" * 300, "bytes": b"\xff", "symbol": symbol("s"),
    "zero": 0, "long": 5, "below": -(1 << 40), "huge": 1 << 62, "int": int32(-5), "uint": uint(1 << 31), "ulong": ulong(1 << 63),
    "small": ulong(7), "byte": byte(-3), "ubyte": ubyte(200), "ushort": ushort(65_000), "float": 1.5, "time": timestamp(7),
    "char": char("x"), "uuid": UUID(int=5),
}  # fmt: skip


@pytest.mark.parametrize("size", [0, 10, 300, 2 << 20])
def test_what_proton_encodes_is_read_as_it_is(size):
    about = {"id": "7", "address": "cdc/a/one", "subject": "batch", "creation_time": 1_700_000_000.0, "durable": True}
    message = Message(body=b"b" * size, inferred=True, properties=VALUES, content_encoding=symbol("zstd"), **about)
    message.annotations = {symbol("x-opt-of-a-router"): ["a", {"b": [1]}]}
    sections = read_sections(message.encode())
    assert sections.application == VALUES | {"char": ord("x")}
    assert sections.body == b"b" * size
    assert (sections.id, sections.address, sections.content_encoding) == ("7", "cdc/a/one", "zstd")
    assert sections.created == 1_700_000_000_000


def test_a_body_may_be_one_value_that_is_bytes_or_a_text():
    assert read_sections(Message(body="é").encode()).body == "é"
    assert read_sections(Message(body=b"x").encode()).body == b"x"
    assert read_sections(Message(body=b"x").encode()).application is None


def test_a_body_may_be_in_several_sections_and_a_footer_may_follow():
    """Of what another sender divided, the first part alone was taken for the whole."""
    data, footer = b"\x00\x53\x75\xa0\x02%b", b"\x00\x53\x78" + mapping(text(b"a"), text(b"b"))
    assert read_sections(data % b"ab" + data % b"cd" + footer).body == b"abcd"
    assert read_sections(Message(body="é").encode() + footer).body == "é"


def test_sections_may_be_named_in_their_long_form():
    long = b"\x00\x80" + (0x74).to_bytes(8, "big") + mapping(text(b"a"), text(b"b"))
    assert read_sections(long + BODY).application == {"a": "b"}


@pytest.mark.parametrize("name", MESSAGES.keys() - {"a body that is a text"})
def test_what_is_none_or_would_cost_more_than_it_holds_is_refused(name):
    with pytest.raises(CorruptInput):
        read_sections(MESSAGES[name])


def test_a_message_is_refused_that_is_cut_anywhere():
    data = Message(body=b"body", inferred=True, properties={"a": 1, "b": "text"}, id="1").encode()
    for size in range(len(data)):
        with pytest.raises(CorruptInput):
            read_sections(data[:size])


@pytest.mark.parametrize(
    "data",
    [
        b"\x00\x53\x74" + mapping(text(b"a")) + BODY,
        b"\x00\x53\x74" + mapping(*[text(b"a")] * (OURS.values + 2)) + BODY,
        b"\x00\x53\x76" + listing(text(b"a")),
        b"\x00\x53\x77" + listing(text(b"a")),
        b"\x00\x53\x73" + text(b"a") + BODY,
        large(nested(90)),
        b"\x00\x53\x70\x45" * 1_000_000 + BODY,
        b"\x00\x53\x74\x45\x00\x53\x73\x45" + BODY,
        BODY + b"\x00",
        BODY + b"\x00\x53\x76\x45",
        BODY + b"\x00\x53\x77" + text(b"a"),
        BODY * (OURS.values + 1),
    ],
)
def test_a_section_that_is_none_of_its_kind_is_refused(data):
    with pytest.raises(CorruptInput):
        read_sections(data)


def test_lists_in_lists_cost_nothing():
    """Proton needed 45 ms of the thread of all sources for 8 kB, and a link has credit for 256 of them."""
    began = time.thread_time()
    for _ in range(100):
        with pytest.raises(CorruptInput):
            read_sections(MESSAGES["properties nested 900 deep (S1)"])
    assert time.thread_time() - began < 1
