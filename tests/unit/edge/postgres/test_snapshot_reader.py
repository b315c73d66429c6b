"""COPY's text form becomes the log's tuples."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.postgres.rows import PAD
from edge.postgres.snapshot_reader import columns, insert

ESCAPES = [("\\", "\\\\"), ("\b", "\\b"), ("\f", "\\f"), ("\n", "\\n"), ("\r", "\\r"), ("\t", "\\t"), ("\v", "\\v")]
TEXTS = st.one_of(st.none(), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))


def copied(row):
    """Return a row as COPY writes it."""
    written = []
    for text in row:
        held = "\\N" if text is None else text
        for character, escape in ESCAPES if text is not None else []:
            held = held.replace(character, escape)
        written.append(held.encode())
    return b"\t".join(written)


def message(row):
    """Return the Insert message of a row, as the log has it."""
    reported = b"I" + struct.pack(">I", 7) + b"N" + struct.pack(">H", len(row))
    for text in row:
        held = None if text is None else text.encode()
        reported += b"n" if held is None else b"t" + struct.pack(">I", len(held)) + held
    return reported + PAD


@given(st.lists(TEXTS, min_size=1, max_size=9))
def test_any_row_becomes_the_message_that_the_log_has(row):
    assert insert(7, len(row))(copied(row)) == message(row)
    assert columns(copied(row)) == [None if text is None else text.encode() for text in row]


@pytest.mark.parametrize("length", [4095, 4096, 100_000])
def test_long_texts_have_their_length(length):
    row = ["x" * length, None, "y"]

    assert insert(7, 3)(copied(row)) == message(row)
    assert insert(7, 2)(copied([row[0], "z"])) == message([row[0], "z"])


def test_as_many_columns_as_a_table_can_have_become_a_message():
    row = [str(number) for number in range(1600)]

    assert insert(7, 1600)(copied(row)) == message(row)
