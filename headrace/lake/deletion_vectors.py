"""Which rows of a Parquet file are deleted, by the deletion vector that a Delta log names for it.

Delta's protocol, "Deletion Vector Format": a descriptor has the vector itself (storage type `i`) or names a place in a file
(`u`: by a UUID, under the table). A vector is a magic number and 32-bit Roaring bitmaps, each with the upper half of its numbers.
"""

import struct
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from headrace.errors import CorruptInput, NeedsOperator
from headrace.lake.storage import Storage

_MAGIC = 1681511377
#: Roaring's cookies, of bitmaps without runs and with them.
_PLAIN, _WITH_RUNS = 12346, 12347
#: Containers with more numbers are bitmaps of 8,192 bytes; with fewer containers than this, those with runs have no offsets.
_ARRAY_MOST, _OFFSETS_FROM = 4096, 4
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_LENGTH = 20


def rows(storage: Storage, table: str, descriptor: dict[str, Any]) -> Iterator[int]:
    """Yield the numbers of deleted rows; raise CorruptInput for bytes that are no vector."""
    kind, text, size = descriptor["storageType"], descriptor["pathOrInlineDv"], int(descriptor["sizeInBytes"])
    if kind == "i":
        vector = _z85(text)[:size]
    elif kind == "u":
        prefix, name = text[:-_UUID_LENGTH], UUID(bytes=_z85(text[-_UUID_LENGTH:]))
        path = "/".join(filter(None, (table, prefix, f"deletion_vector_{name}.bin")))
        with storage.opened(path) as file:
            file.seek(int(descriptor.get("offset") or 0))
            # Its size, as the descriptor has it, is ahead of it, and a checksum behind it.
            (written,) = struct.unpack(">I", file.read(4))
            vector = bytes(file.read(size))
        if written != size:
            raise CorruptInput(f"{storage.root}/{path}: the deletion vector has {written} bytes, its log says {size}")
    else:
        raise NeedsOperator(f"{storage.root}/{table}: a deletion vector is outside of the table, as in a clone")
    try:
        yield from decode(vector)
    except (struct.error, IndexError) as error:
        raise CorruptInput(f"{storage.root}/{table}: a deletion vector ends too early") from error


def decode(vector: bytes) -> Iterator[int]:
    """Yield the numbers of a vector; raise CorruptInput, struct.error or IndexError for bytes that are none."""
    magic, bitmaps = struct.unpack_from("<IQ", vector)
    if magic != _MAGIC:
        raise CorruptInput("a deletion vector begins with another number than Delta's")
    at = 12
    for _ in range(bitmaps):
        (high,) = struct.unpack_from("<I", vector, at)
        numbers, at = _bitmap(vector, at + 4)
        yield from ((high << 32) | number for number in numbers)


def _bitmap(data: bytes, at: int) -> tuple[list[int], int]:
    """Return the numbers of a Roaring bitmap in its portable form, and where it ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        count, at = (cookie >> 16) + 1, at + 4
        runs, at = data[at : at + (count + 7) // 8], at + (count + 7) // 8
    elif cookie == _PLAIN:
        (count,) = struct.unpack_from("<I", data, at + 4)
        at += 8
    else:
        raise CorruptInput("a deletion vector holds no Roaring bitmap")
    heads = [struct.unpack_from("<HH", data, at + 4 * place) for place in range(count)]
    at += 4 * count
    if not runs or count >= _OFFSETS_FROM:
        at += 4 * count
    found: list[int] = []
    for place, (key, fewer) in enumerate(heads):
        base, size = key << 16, fewer + 1
        if runs and runs[place // 8] >> (place % 8) & 1:
            (number,) = struct.unpack_from("<H", data, at)
            pairs = struct.unpack_from(f"<{2 * number}H", data, at + 2)
            for start, length in zip(pairs[::2], pairs[1::2], strict=True):
                found += range(base + start, base + start + length + 1)
            at += 2 + 4 * number
        elif size > _ARRAY_MOST:
            bits = int.from_bytes(data[at : at + 8192], "little")
            if len(data) < at + 8192:
                raise struct.error
            found += _set_bits(bits, base)
            at += 8192
        else:
            found += [base + low for low in struct.unpack_from(f"<{size}H", data, at)]
            at += 2 * size
    return found, at


def _set_bits(bits: int, base: int) -> list[int]:
    digits = bin(bits)[:1:-1]
    found, place = [], digits.find("1")
    while place >= 0:
        found.append(base + place)
        place = digits.find("1", place + 1)
    return found


def _z85(text: str) -> bytes:
    """Return the bytes of a text in Z85: five characters for four bytes."""
    found = bytearray()
    for start in range(0, len(text), 5):
        number = 0
        for character in text[start : start + 5]:
            number = number * 85 + _Z85.index(character)
        found += number.to_bytes(4, "big")
    return bytes(found)
