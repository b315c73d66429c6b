"""Deletion vectors, as a Delta log has them."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import CorruptInput
from headrace.lake import delta_log


def container(numbers):
    """Return an array's bytes, or those of a bitmap where there are too many numbers for one."""
    if len(numbers) <= 4096:
        return struct.pack(f"<{len(numbers)}H", *numbers)
    return sum(1 << number for number in numbers).to_bytes(8192, "little")


def bitmap(numbers):
    """Return a Roaring bitmap in its portable form."""
    parts = {}
    for number in sorted(numbers):
        parts.setdefault(number >> 16, []).append(number & 0xFFFF)
    heads = b"".join(struct.pack("<HH", key, len(part) - 1) for key, part in parts.items())
    bodies, offsets, at = b"", b"", 8 + 8 * len(parts)
    for part in parts.values():
        offsets += struct.pack("<I", at + len(bodies))
        bodies += container(part)
    return struct.pack("<II", 12346, len(parts)) + heads + offsets + bodies


def vector(*bitmaps):
    """Return a vector of bitmaps, each with the upper half of its numbers."""
    head = struct.pack("<IQ", 1681511377, len(bitmaps))
    return head + b"".join(struct.pack("<I", high) + bytes_of for high, bytes_of in bitmaps)


@given(st.sets(st.integers(0, 200_000), max_size=300))
def test_numbers_of_a_vector_are_those_that_were_put_in(numbers):
    assert list(delta_log.decode_vector(vector((0, bitmap(numbers))))) == sorted(numbers)


def test_every_kind_of_container_is_read():
    many = set(range(0, 60_000, 7))
    assert list(delta_log.decode_vector(vector((0, bitmap(many)), (1, bitmap({5}))))) == [*sorted(many), (1 << 32) + 5]
    # runs: of two containers the first is one, 10 to 13 and 20
    heads = struct.pack("<HHHH", 0, 4, 1, 0)
    runs = struct.pack("<HHHHH", 2, 10, 3, 20, 0)
    with_runs = struct.pack("<I", 12347 | 1 << 16) + b"\1" + heads + runs + struct.pack("<H", 9)
    assert list(delta_log.decode_vector(vector((0, with_runs)))) == [10, 11, 12, 13, 20, (1 << 16) + 9]


def test_a_vector_that_is_cut_or_is_none_is_refused():
    for whole in (vector((0, bitmap({1, 70_000}))), vector((0, bitmap(range(5000))))):
        for length in range(0, len(whole), max(1, len(whole) // 50)):
            with pytest.raises((CorruptInput, struct.error, IndexError)):
                list(delta_log.decode_vector(whole[:length]))
    for wrong in (struct.pack("<IQ", 1, 1), vector((0, struct.pack("<II", 7, 1)))):
        with pytest.raises(CorruptInput):
            list(delta_log.decode_vector(wrong))
