"""Tables of random columns, and changes of them, good and damaged, with what every decoder of theirs makes of them."""

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from edge.postgres import snapshot_reader
from edge.postgres.relations import Relation
from edge.postgres.rows import (
    PAD,
    Change,
    CopyRows,
    Table,
    plan_copied,
    plan_delete,
    plan_insert,
    plan_key_delete,
    plan_update,
    plan_whole_update,
)
from edge.records.column_policy import Policy
from headrace.configuration.edge import ColumnRule
from headrace.configuration.edge import Policy as Section
from tests.unit.edge.postgres.messages import UNCHANGED, Column, Log, delete, insert, relation, update

#: What comes from the transaction: the parts of Around.
AROUND = (
    b"1769850900250",
    b'761,"lsn":9,"position":"1/2/',
    b"0000000a",
    b'3,"transaction":{"id":"1","total_order":',
    b"11",
)
_EXCLUDED = Policy(Section(columns=[ColumnRule(columns=["*.*.secret*"], action="exclude")]))

TEXTS = (
    "", "a", "nine chars", "t", "f", "n", "null", '"', "\\", "\\x", "\\x0", "\\x00fF", "\\xgg", "\b\t\n\f\r\x00\x1f\x7f", "é",
    "€", "😀", "\ud7ff\ue000\uffff", "0", "-0", "-1", "1.5e-10", "NaN", "-Infinity", "Infinity", "infinity", "2026-01-31", "+00",
    "12:00:00+00", "2026-01-31 09:15:00.25", "2026-01-31 09:15:00+00", "2026-01-31 09:15:00.123456+05:30",
    "0044-03-15 00:00:00+00 BC", "x" * 300, "7 letters ü" * 9, 'tab\tand "quotes" ' * 5, '{"a": "b"}', "ab", "abc", "\\xdead00",
)  # fmt: skip
#: No UTF-8: continuations alone, overlong, surrogates, above U+10FFFF, and characters that are cut.
NO_TEXTS = (
    b"\x80", b"\xbf", b"\xc0\x80", b"\xc1\xbf", b"\xe0\x80\x80", b"\xe0\x9f\xbf", b"\xed\xa0\x80", b"\xed\xbf\xbf",
    b"\xf0\x8f\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98",
    b"\xe2\x28\xa1", b"\xc3\x28", b"\xf0\x28\x8c\xbc",
)  # fmt: skip
#: Built-in types by how they are written, and one that is nowhere named.
TYPES = (20, 21, 23, 26, 700, 701, 16, 17, 1114, 1184, 25, 1043, 114, 3802, 1700, 1082, 2950, 869, 1007, 50_001)


class Case(NamedTuple):
    """Two ways to decode the messages of one kind of change, and such a message."""

    exact: Change
    in_c: Change
    message: bytes


def a_value(chance: random.Random, oid: int, odd: float) -> Any:
    """Return a value of a column: one that its type can have, but for an odd share of them."""
    if chance.random() < odd:
        text = chance.choice(TEXTS)
        no_text = text.encode() + chance.choice(NO_TEXTS) + chance.choice(TEXTS).encode()
        return chance.choice((UNCHANGED, no_text, chance.randbytes(chance.randrange(12)), text, text, text))
    return None if chance.random() < 0.1 else _ordinary(chance, oid)


def _ordinary(chance: random.Random, oid: int) -> Any:
    number = chance.randrange(-10_000, 10_000)
    if oid == 16:
        return chance.choice("tf")
    if oid == 17:
        return "\\x" + chance.randbytes(chance.randrange(20)).hex()
    if oid in {700, 701}:
        return number / 7
    if oid in {1114, 1184}:
        return f"2026-01-{chance.randrange(1, 31):02} 09:15:00.{number % 1000:03}" + "+00" * (oid == 1184)
    if oid in {25, 1043, 114, 3802, 1007, 50_001}:
        return "".join(chance.choice('abc xyz"\\\n\té€😀0') for _ in range(chance.choice((3, 8, 20, 90))))
    return number


def a_table(chance: random.Random) -> tuple[Table, list[int]]:
    """Return a table of random columns, and their types."""
    oids = [chance.choice(TYPES) for _ in range(chance.choice((1, 2, 5, 8, 30, 150)))]
    names = [chance.choice(("c", "secret", 'q"', "ü")) + str(number) for number in range(len(oids))]
    identity = chance.choice("dfin")
    kept = [not name.startswith("secret") for name in names]
    keyed = [identity == "f" or (identity != "n" and is_kept and chance.random() < 0.3) for is_kept in kept]
    columns = [Column(name, oid, key=key) for name, oid, key in zip(names, oids, keyed, strict=True)]
    key = [name for name, is_kept in zip(names, kept, strict=True) if is_kept and chance.random() < 0.3]
    chance.shuffle(key)

    def key_of(_: Relation) -> list[str]:
        return key

    log = Log(key_of=key_of, policy=_EXCLUDED)
    log.transaction(relation(*columns, identity=identity))
    (table,) = log.decoder._tables.values()
    return table, oids


def cases(chance: random.Random) -> Iterator[Case]:
    """Yield a case for each kind of change of a random table; a message is damaged or is not."""
    table, oids = a_table(chance)
    odd = chance.choice((0, 0.02, 0.2))

    def row() -> list[Any]:
        return [a_value(chance, oid, odd) for oid in oids]

    old, new = row(), row()
    key = [value if number in table.identity else None for number, value in enumerate(old)]
    if chance.random() < 0.1:
        key = old
    kinds: list[tuple[Change, Callable[[Table], Change | None], bytes]] = [
        (table.insert, plan_insert, insert(*new)),
        (table.update, plan_update, update(new)),
        (table.update, plan_whole_update, update(new, old=old)),
        (table.delete, plan_delete, delete(old=old)),
        (table.delete, plan_key_delete, delete(key=key)),
    ]
    for exact, make, message in kinds:
        if (in_c := make(table)) is not None:
            yield Case(exact, in_c, message if chance.random() < 0.6 else damaged(chance, message))


class Copy(NamedTuple):
    """Rows as COPY prints them, the function in C for many, and the one for the message of any, as which it is `described`."""

    rows: list[bytes]
    in_c: CopyRows
    exact: Change
    described: Callable[[bytes], bytes]

    def made_in_c(self, changed: dict[bytes, bytes], free: int = 1 << 20, largest: int = 1 << 20) -> dict[int, Any]:
        """Return keys and values by the numbers of their rows, of all that are not left to Python."""
        results: dict[int, Any] = {}
        at, committed, place, _, read, _ = 0, *AROUND
        while at < len(self.rows):
            keys: list[bytes | None] = []
            values: list[bytes] = []
            first = at
            at, left = self.in_c(self.rows, at, free, largest, changed, keys, values, first, committed, place, read)
            assert left == free - sum(map(len, values))
            assert len(keys) == len(values) == at - first
            results |= dict(enumerate(zip(keys, values, strict=True), first))
            at += 1
        return results

    def made_exactly(self, number: int) -> Any:
        """Return key and value of a row, or what is raised for one that is none."""
        committed, place, _, read, _ = AROUND
        try:
            message = self.described(self.rows[number])
        except ValueError as error:
            return type(error), str(error)
        around = committed, place, b"%08x" % number, read, b"%d" % (number + 1)
        return outcome(self.exact, message[: -len(PAD)], around)


def a_copy(chance: random.Random) -> Copy | None:
    """Return random rows of a random table, good and damaged; None for a table that is not decoded in C."""
    table, oids = a_table(chance)
    reading = table.for_snapshot()
    in_c = plan_copied(reading)
    if in_c is None:
        return None
    odd = chance.choice((0, 0.02, 0.2))
    rows = [b"\t".join(_printed(a_value(chance, oid, odd)) for oid in oids) for _ in range(chance.choice((1, 2, 20)))]
    for number in range(len(rows)):
        if chance.random() < 0.2:
            at = chance.randrange(len(rows[number]) + 1)
            added = chance.choice((b"\t", b"\\", b"\\N", b"\\n", b"\xff", b""))
            rows[number] = rows[number][:at] + added + rows[number][at + chance.choice((0, 1, 5)) :]
    return Copy(rows, in_c, reading.insert, snapshot_reader.insert(1, len(oids)))


def _printed(value: Any) -> bytes:
    if value is None or value is UNCHANGED:
        return b"\\N"
    text = value if isinstance(value, bytes) else str(value).encode()
    for character, letter in zip(b"\\\b\f\n\r\t\v", b"\\bfnrtv", strict=True):
        text = text.replace(bytes([character]), bytes([92, letter]))
    return text


def damaged(chance: random.Random, message: bytes) -> bytes:
    """Return a message with some bytes altered, taken out or added behind its first eight, which decide how it is decoded."""
    spoiled = bytearray(message)
    for _ in range(chance.choice((1, 1, 2, 5))):
        at = chance.randrange(8, max(9, len(spoiled)))
        what = chance.randrange(4)
        if what == 0:
            spoiled[at : at + 1] = bytes(
                [chance.choice((0, 1, 4, *b'tnub"N', 0x7F, 0x80, 0xC3, 0xFF, chance.randrange(256)))]
            )
        elif what == 1:
            del spoiled[at : at + chance.choice((1, 2, 4, 100))]
        elif what == 2:
            spoiled[at:at] = chance.choice((b"n", b"t\0\0\0\0", b"u", b"N\0\1", chance.randbytes(5)))
        else:
            spoiled[at : at + 4] = chance.choice((0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)).to_bytes(4, "big")
    return bytes(spoiled)


def outcome(change: Change, message: bytes, around: Sequence[bytes] = AROUND) -> Any:
    """Return key and value, or what is raised for a message that is none."""
    try:
        return change(message + PAD, *around)
    except (struct.error, IndexError, KeyError, ValueError) as error:
        return type(error), str(error)
