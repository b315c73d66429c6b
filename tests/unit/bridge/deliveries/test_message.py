"""A record as a message, and what a receiver reads of it."""

import json

import pytest

from bridge.deliveries.pending import Entry, encode
from bridge.deliveries.record import Record
from headrace.receive.message import decode


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (b"jakarta/1", b'{"card": 5}', {"key": "jakarta/1", "json": {"card": 5}}),
        (b"jakarta/1", "\u00e9 a".encode(), {"key": "jakarta/1", "text": "\u00e9 a"}),
        (None, b"\xff", {"key": None, "base64": "/w=="}),
        (b"\xff", None, {"key": {"base64": "/w=="}, "tombstone": True}),
        (b"k", b"", {"key": "k", "text": ""}),
        (b"k", b'{\n"a": [1,\n2]}', {"key": "k", "json": {"a": [1, 2]}}),
    ],
)
def test_what_is_in_the_record_comes_out_of_the_message(key, value, said):
    headers = (("branch", b"17"), ("raw", b"\xfe"), ("none", None))
    entry = Entry(Record("alerts", 3, 70_000_000_000, key, value, headers, 1_700_000_000_123), "alerts/jakarta")
    entry.sends = 1
    received = decode(encode(entry, "alerts"))
    line = received.line()
    assert b"\n" not in line
    assert json.loads(line) == {
        "id": "alerts/3/70000000000",
        "address": "alerts/jakarta",
        "timestamp": 1_700_000_000_123,
        "headers": {"branch": "17", "raw": {"base64": "/g=="}, "none": None},
        **said,
    }


def test_what_is_no_message_is_none():
    assert decode(b"no AMQP at all") is None
