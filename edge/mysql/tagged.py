"""The event that begins a transaction with a tagged GTID, of MySQL 8.3 and newer.

It has a form of its own: a message of numbered fields, of which those that are of no use are left out. Malformed events are
ValueErrors, or IndexErrors where they end early, as those of events.py; edge/mysql/decoder.py turns both into CorruptInput.
"""

from typing import Final

from edge.mysql.events import HEADER_SIZE, Group

_UUID, _NUMBER, _TAG, _COMMITTED_HERE, _COMMITTED_FIRST = 1, 2, 3, 6, 7
#: The fields with one whole number: flags, number, the clock of replicas twice, and the times.
_WHOLE: Final = frozenset({0, _NUMBER, 4, 5, _COMMITTED_HERE, _COMMITTED_FIRST})
_LONGEST_TAG = 32


def tagged_group(event: bytes, end: int) -> tuple[Group, int]:
    """Return the transaction, whose origin is `UUID:tag`, and when it first committed, in microseconds since 1970, 0 for unknown.

    Version of the form, size of the message, number of the last field that may not be passed over; then for each field that is
    there, by growing numbers, its number and its value: 0 flags, 1 UUID as 16 numbers, 2 number, 3 tag with its length ahead, 4
    and 5 for replicas that apply in parallel, 6 and 7 when it committed here and, where that differs, on the first server, and
    more that is not needed. Whole numbers are as `_whole` has them; 2, 4 and 5 have their sign in the lowest bit.
    """
    version, at = _whole(event, HEADER_SIZE)
    size, at = _whole(event, at)
    if version != 1 or HEADER_SIZE + size > end:
        raise ValueError("a tagged GTID is of an unknown form")
    end = HEADER_SIZE + size
    _, at = _whole(event, at)
    uuid, tag, found = b"", "", dict.fromkeys(_WHOLE, 0)
    while at < end:
        field, at = _whole(event, at)
        if field in _WHOLE:
            found[field], at = _whole(event, at)
        elif field == _UUID:
            parts = []
            for _ in range(16):
                part, at = _whole(event, at)
                parts.append(part)
            uuid = bytes(parts)
        elif field == _TAG:
            length, at = _whole(event, at)
            tag, at = event[at : at + length].decode("ascii"), at + length
            if not 0 < length <= _LONGEST_TAG:
                raise ValueError("a GTID's tag has an impossible length")
        else:
            break
    if not uuid or at > end or found[_NUMBER] & 1 or not found[_NUMBER]:
        raise ValueError("a tagged GTID is cut short")
    digits = uuid.hex()
    server = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    origin = f"{server}:{tag}" if tag else server
    return Group(0, origin, found[_NUMBER] >> 1), found[_COMMITTED_FIRST] or found[_COMMITTED_HERE]


def _whole(event: bytes, at: int) -> tuple[int, int]:
    """Return a whole number and where it ends.

    As many of the first byte's lowest bits are set as bytes follow it; above those and a bit that is not set, or behind a byte of
    eight such bits, is the number, little-endian.
    """
    first = event[at]
    more = ((first ^ 0xFF) & -(first ^ 0xFF)).bit_length() - 1 if first != 0xFF else 8
    if at + 1 + more > len(event):
        raise ValueError("a number is cut short")
    if more == 8:
        return int.from_bytes(event[at + 1 : at + 9], "little"), at + 9
    return int.from_bytes(event[at : at + 1 + more], "little") >> (more + 1), at + 1 + more
