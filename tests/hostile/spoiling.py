"""How the fuzzer spoils values, packs them again, and what a target may refuse."""

import json
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from headrace.errors import CorruptInput, NeedsOperator, ReplicationError


class FaultError(AssertionError):
    """A target did not take an input as it has to."""


#: Marks in a JSON text, in whose place comes what Python's encoder does not write.
_IN_JSON = {
    b'"@deep"': b"[" * 100_000, b'"@deep-object"': b'{"a":' * 100_000, b'"@digits"': b"9" * 5000, b'"@huge"': b"1e999999",
    b'"@half"': b'"\\ud800"', b'"@bytes"': b'"\xff\xfe"', b'"@twice"': b'{"version":1,"version":2}',
}  # fmt: skip
#: What MessagePack can hold and Python's encoder does not write: depth, types of others, times beyond any, texts that are none.
_IN_MSGPACK = [
    msgspec.Raw(each)
    for each in (
        b"\x91" * 100_000 + b"\xc0", b"\xd4\x05x", b"\xc7\x0c\xff" + b"\xff" * 12, b"\xd7\xff" + b"\xff" * 8, b"\xa2\xff\xfe",
        b"\x81\x90\x01", b"\x82\xa1a\x01\xa1a\x02", b"\xdd\x7f\xff\xff\xff", b"\xc1",
    )
]  # fmt: skip
_ODD: list[Any] = [
    None, True, False, 0, 1, -1, 2**31, 2**32 - 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1, -(2**63), 1e308, float("nan"),
    float("inf"), float("-inf"), -0.0, 1.5, 10**400, -(10**30),
    "", "x", "\x00", "\x1b[2J", "\u202e", "é" * 300, "public", "t", "@prefix.public.t", "a/two", "../..", "{}", "[]", "null",
    "\udc80", "\ud800x", "1e5", "1_000", "0x10", " 1", "\u0663", "9" * 25, "-1", "9999-99-99", "24:60:61", "1" * 5000,
    "0-5-" + "9" * 5000,
    b"", b"\x00", b"\x00\x00\x00\x00\x01", b"\xff\xfe", b'{"tableChanges":', b'{"databaseName":', b'{"status":"', [], {}, [[]],
    {"a": 1}, [0, 0, 1], {0: []}, 10**30, *(each.decode(errors="ignore").strip('"') for each in _IN_JSON), *_IN_MSGPACK,
]  # fmt: skip
_NAMES = [each for each in _ODD if not isinstance(each, list | dict | msgspec.Raw)]


def spoil(value: Any, chance: random.Random, depth: int = 0) -> Any:  # noqa: C901, PLR0911 - a case for each type.
    """Return a value with some of what it holds changed, moved, doubled or left out."""
    if depth > 12 or chance.random() < 0.08:
        return chance.choice(_ODD)
    if isinstance(value, dict):
        items = [(key, spoil(each, chance, depth + 1)) for key, each in value.items()]
        if items and chance.random() < 0.2:
            items.pop(chance.randrange(len(items)))
        if chance.random() < 0.15:
            items.append((chance.choice(_NAMES), chance.choice(_ODD)))
        return dict(items)
    if isinstance(value, list | tuple):
        items = [spoil(each, chance, depth + 1) for each in value]
        if items and chance.random() < 0.2:
            items.insert(chance.randrange(len(items) + 1), chance.choice(items))
        if items and chance.random() < 0.1:
            items.pop(chance.randrange(len(items)))
        return items
    if isinstance(value, bytes) and chance.random() < 0.3:
        return spoil_bytes(value, chance)
    if isinstance(value, str) and chance.random() < 0.3:
        return spoil_bytes(value.encode(), chance).decode(errors="replace")
    if isinstance(value, int) and not isinstance(value, bool) and chance.random() < 0.3:
        return value + chance.choice((-1, 1, 2**31, 2**32, -(2**32), 2**63))
    return value


def spoil_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes with some flipped, cut, doubled or put in."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(result) + 1)
        match chance.randrange(5):
            case 0:
                if at < len(result):
                    result[at] ^= 1 << chance.randrange(8)
            case 1:
                del result[at : at + chance.randint(1, 8)]
            case 2:
                result[at:at] = result[at : at + chance.randint(1, 16)]
            case 3:
                result[at:at] = chance.choice(
                    (
                        b"\xff",
                        b"\x00",
                        b'"',
                        b"\\",
                        b"\\ud800",
                        b"\xc1",
                        b"\xdd\xff\xff\xff\xff",
                        b"9" * 25,
                        b"9" * 5000,
                        b"1e999",
                        b"-",
                        b"NaN",
                        b"\xed\xa0\x80",
                        b"[" * 5000,
                        b"\xff" * 8,
                        b"\x7f\xff\xff\xff",
                    )
                )
            case _:
                del result[at:]
    return bytes(result)


def packed(value: Any) -> bytes:
    try:
        return msgspec.msgpack.encode(value)
    except (OverflowError, ValueError, TypeError):
        return msgspec.msgpack.encode(plain(value))


def plain(value: Any) -> Any:
    """Return a value with what MessagePack cannot hold as texts."""
    if isinstance(value, dict):
        return {
            plain(key) if not isinstance(key, list | dict) else str(key): plain(each) for key, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, msgspec.Raw):
        return None
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def json_of(value: Any) -> bytes:
    """Return a value as JSON, in the form of our records; names that are no texts become some."""

    def texts(each: Any) -> Any:
        if isinstance(each, dict):
            return {key if isinstance(key, str) else str(key): texts(inner) for key, inner in each.items()}
        if isinstance(each, msgspec.Raw):
            return "@deep"
        return [texts(inner) for inner in each] if isinstance(each, list | tuple) else each

    data = json.dumps(texts(value), default=str, separators=(",", ":")).encode(errors="replace")
    for mark, content in _IN_JSON.items():
        data = data.replace(mark, content)
    return data


def folder_in_memory() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder for one input: what is made durable costs most of its time on a disk."""
    return tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None)


def expected(step: Callable[[], Any]) -> Any:
    """Return what a step returns, None where it refuses: any other error is a fault."""
    try:
        return step()
    except (CorruptInput, NeedsOperator) as error:
        if len(error.message) > 2000:
            raise FaultError("an error longer than a line") from error
        return None
    except ReplicationError:
        return None
