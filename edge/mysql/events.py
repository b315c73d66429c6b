"""Binlog events: their header, and the bodies of those that are not rows (MariaDB manual, "Replication Protocol").

Header, 19 bytes, little-endian: Int32 timestamp, Int8 type, Int32 server id, Int32 length of the event, Int32 end position,
Int16 flags. Where the log is checksummed, a CRC-32 of everything before it ends the event. Bodies raise ValueError,
struct.error or IndexError when they do not match their type; edge/mysql/decoder.py turns that into CorruptInput.

The event that begins a transaction with a tagged GTID, of MySQL 8.3 and newer, has a form of its own: a message of numbered
fields, of which those that are of no use are left out.
"""

import struct
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Final, NamedTuple

import zstandard

from edge.mysql.table_map import packed

HEADER = struct.Struct("<IBIIIH").unpack_from
HEADER_SIZE = 19
CHECKSUM_SIZE = 4

QUERY, STOP, ROTATE, INTVAR, APPEND_BLOCK, DELETE_FILE, RAND, USER_VAR, FORMAT, XID = 2, 3, 4, 5, 9, 11, 13, 14, 15, 16
BEGIN_LOAD, EXECUTE_LOAD, TABLE_MAP, INCIDENT, HEARTBEAT, IGNORABLE, ROWS_QUERY = 17, 18, 19, 26, 27, 28, 29
WRITE_1, UPDATE_1, DELETE_1, WRITE_2, UPDATE_2, DELETE_2 = 23, 24, 25, 30, 31, 32
#: MySQL's own.
GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE, XA_PREPARE = 33, 34, 35, 36, 37, 38
PARTIAL_UPDATE, TRANSACTION_PAYLOAD, HEARTBEAT_2, GTID_TAGGED = 39, 40, 41, 42
#: MariaDB's own.
ANNOTATE, BINLOG_CHECKPOINT, MARIADB_GTID, GTID_LIST, START_ENCRYPTION, QUERY_COMPRESSED = 160, 161, 162, 163, 164, 165
WRITE_1_COMPRESSED, UPDATE_1_COMPRESSED, DELETE_1_COMPRESSED = 166, 167, 168
WRITE_2_COMPRESSED, UPDATE_2_COMPRESSED, DELETE_2_COMPRESSED = 169, 170, 171

INSERTS = frozenset({WRITE_1, WRITE_2, WRITE_1_COMPRESSED, WRITE_2_COMPRESSED})
UPDATES = frozenset({UPDATE_1, UPDATE_2, UPDATE_1_COMPRESSED, UPDATE_2_COMPRESSED})
DELETES = frozenset({DELETE_1, DELETE_2, DELETE_1_COMPRESSED, DELETE_2_COMPRESSED})
#: Rows of the second version, and rows that are compressed.
SECOND = frozenset({WRITE_2, UPDATE_2, DELETE_2, WRITE_2_COMPRESSED, UPDATE_2_COMPRESSED, DELETE_2_COMPRESSED})
COMPRESSED = frozenset(range(WRITE_1_COMPRESSED, DELETE_2_COMPRESSED + 1))
#: Rows, and what describes them.
ROWS = INSERTS | UPDATES | DELETES | {TABLE_MAP}
#: Events without rows. A file's content is rows only once a statement says of which table.
PASSED = frozenset({
    STOP, FORMAT, INTVAR, RAND, USER_VAR, BEGIN_LOAD, APPEND_BLOCK, DELETE_FILE, IGNORABLE, ROWS_QUERY, ANNOTATE,
    BINLOG_CHECKPOINT, GTID_LIST, PREVIOUS_GTIDS, TRANSACTION_CONTEXT, VIEW_CHANGE, START_ENCRYPTION, HEARTBEAT_2,
})  # fmt: skip

#: A reader that does not know the type may pass the event over.
MAY_BE_IGNORED = 0x80

_CHECKSUM_CRC32 = 1
_MARIADB_GTID = struct.Struct("<QIB").unpack_from
_GTID = struct.Struct("<B16sQ").unpack_from
#: Where a GTID event of MySQL's has the time of the commit, 17 bytes after a mark of what they are.
_COMMITTED, _LOGICAL_CLOCK, _COMMITTED_ELSEWHERE = HEADER_SIZE + 42, 2, 1 << 55
_QUERY = struct.Struct("<IIBHH").unpack_from
_UINT64 = struct.Struct("<Q").unpack_from
_XA = struct.Struct("<BIII").unpack_from
_STANDALONE, _PREPARED_XA, _COMPLETED_XA = 0x01, 0x40, 0x80
#: Codes of variables in a query event, and the sizes of those that precede the client's collation.
_SQL_MODE, _CLIENT_COLLATION, _CATALOG = 1, 4, 6
_VARIABLE_SIZES = {0: 4, _SQL_MODE: 8, 3: 4}
#: What a compressed part may unpack to, in bytes: MariaDB's largest max_allowed_packet.
_LARGEST = 1 << 30


class Group(NamedTuple):
    """The head of an event group: a transaction, or a statement that is alone."""

    #: MariaDB's replication domain; 0 in MySQL.
    domain: int
    #: The server that the group was first written on: MariaDB's server id, MySQL's UUID.
    origin: str
    number: int
    #: Whether one query and nothing else follows; in MySQL that shows only then.
    standalone: bool = False
    #: `prepare` or `complete` when the group is one half of a two-phase XA transaction.
    xa: str = ""

    @property
    def text(self) -> str:
        """Return the GTID as the server writes it."""
        return (
            f"{self.domain}-{self.origin}-{self.number}" if "-" not in self.origin else f"{self.origin}:{self.number}"
        )


class Query(NamedTuple):
    """A statement."""

    database: str
    words: bytes
    #: Number of a collation of the client's character set, in which the statement is written; None where it is not given.
    collation: int | None = None
    #: The `sql_mode` under which it was executed.
    sql_mode: int = 0
    #: Number of the connection that executed it.
    thread: int = 0


class Prepared(NamedTuple):
    """The end of an XA transaction's rows: its id as statements in the log have it, and whether that is its commit too."""

    xid: str
    one_phase: bool


def is_checksummed(event: bytes) -> bool:
    """Int16 version, Byte50 server version, Int32 made, Int8 header length, Byten post-header lengths, Int8 checksum, Int32."""
    if int.from_bytes(event[19:21], "little") != 4:
        raise ValueError("the binlog is not of version 4")
    # The algorithm is in front of the checksum, which this event always has space for.
    return event[-CHECKSUM_SIZE - 1] == _CHECKSUM_CRC32


def server_version(event: bytes) -> str:
    """Return the version of the server that writes what follows a format description event, which begins as above."""
    return event[21:71].rstrip(b"\0").decode("ascii", "replace")


def rotated(event: bytes, end: int) -> tuple[str, int]:
    """Return the next file and the place in it: Int64 position, then the name."""
    (position,) = _UINT64(event, HEADER_SIZE)
    return event[HEADER_SIZE + 8 : end].decode(), position


def mariadb_group(event: bytes, server_id: int) -> Group:
    """Int64 number, Int32 domain, Int8 flags, and more that flags announce."""
    number, domain, flags = _MARIADB_GTID(event, HEADER_SIZE)
    xa = "prepare" if flags & _PREPARED_XA else "complete" if flags & _COMPLETED_XA else ""
    return Group(domain, str(server_id), number, standalone=bool(flags & _STANDALONE), xa=xa)


def mysql_group(event: bytes) -> Group:
    """Int8 flags, Byte16 UUID, Int64 number, and more that is not needed."""
    _flags, uuid, number = _GTID(event, HEADER_SIZE)
    digits = uuid.hex()
    return Group(0, "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])), number)


def mysql_committed(event: bytes, end: int) -> int:
    """Return when a transaction committed on the server that wrote it first, in microseconds since 1970; 0 if that is not given.

    After the number: Int8 2 and two Int64 for replicas that apply in parallel; then, from MySQL 8.0.1 on, Int56 when it committed
    on this server, with its highest bit set where an Int56 follows: when it committed on the first one.
    """
    if end < _COMMITTED + 7 or event[_COMMITTED - 17] != _LOGICAL_CLOCK:
        return 0
    here = int.from_bytes(event[_COMMITTED : _COMMITTED + 7], "little")
    if not here & _COMMITTED_ELSEWHERE:
        return here
    if end < _COMMITTED + 14:
        raise ValueError("a transaction's time is cut short")
    return int.from_bytes(event[_COMMITTED + 7 : _COMMITTED + 14], "little")


def prepared(event: bytes, end: int) -> Prepared:
    """Int8 whether it is one phase, Int32 format, Int32 length of the transaction's id, Int32 length of its branch, both."""
    one_phase, form, first, second = _XA(event, HEADER_SIZE)
    at = HEADER_SIZE + 13
    if at + first + second > end:
        raise ValueError("an XA transaction's id is cut short")
    name, branch = event[at : at + first], event[at + first : at + first + second]
    return Prepared(xid(form, name, branch), bool(one_phase))


def xid(form: int, name: bytes, branch: bytes) -> str:
    """Return an XA transaction's id as statements in the log have it."""
    return f"X'{name.hex()}',X'{branch.hex()}',{form}"


def query(event: bytes, end: int, *, compressed: bool) -> Query:
    """Int32 thread, Int32 seconds, Int8 length of database, Int16 error, Int16 length of variables, the variables, ..."""
    thread, _seconds, length, _error, variables = _QUERY(event, HEADER_SIZE)
    at = HEADER_SIZE + 13 + variables
    if event[at + length] != 0:
        raise ValueError("a query's database has another length than stated")
    words = event[at + length + 1 : end]
    sql_mode, collation = _variables(event[at - variables : at])
    return Query(
        event[at : at + length].decode(), unpacked(words) if compressed else words, collation, sql_mode, thread
    )


def loading_query(event: bytes, end: int) -> Query:
    """Return the statement of a file's rows: as `query`, with 13 bytes about the file ahead of the variables."""
    return query(event[: HEADER_SIZE + 13] + event[HEADER_SIZE + 26 : end], end - 13, compressed=False)


def _variables(variables: bytes) -> tuple[int, int | None]:
    """Int8 code and a value for each variable, in this order: 0 flags, Int32; 1 sql_mode, Int64; 6 catalog, Int8 length and
    bytes; 3 auto increment, two Int16; 4 collations of client, connection and server, three Int16; and more that is not needed.
    """
    sql_mode, at = 0, 0
    while at < len(variables):
        code = variables[at]
        if code == _CLIENT_COLLATION:
            return sql_mode, int.from_bytes(variables[at + 1 : at + 3], "little")
        if code == _SQL_MODE:
            sql_mode = int.from_bytes(variables[at + 1 : at + 9], "little")
        if code == _CATALOG:
            at += 2 + variables[at + 1]
        elif code in _VARIABLE_SIZES:
            at += 1 + _VARIABLE_SIZES[code]
        else:
            break
    return sql_mode, None


def unpacked(data: bytes) -> bytes:
    """Int8 header (0x80, algorithm in bits 4 to 6, bytes of the length in bits 0 to 2), big-endian length, deflated data."""
    size = data[0] & 0x07
    if data[0] & 0xF0 != 0x80 or not 1 <= size <= 4:
        raise ValueError("a compressed event has an unknown compression")
    length = int.from_bytes(data[1 : 1 + size], "big")
    if length > _LARGEST:
        raise ValueError("a compressed event unpacks to too much")
    try:
        inflate = zlib.decompressobj()
        plain = inflate.decompress(data[1 + size :], length)
    except zlib.error as error:
        raise ValueError("a compressed event is damaged") from error
    if len(plain) != length:
        raise ValueError("a compressed event unpacks to another length than stated")
    return plain


_ZSTD, _PLAIN = 0, 255


class Payload:
    """A compressed transaction of MySQL's: its size when it is unpacked, in bytes, and its events, unpacked one by one.

    Packed kind, length and value of each field, kind 0 at their end; then the data. Fields: 2 the compression, 3 the size.
    """

    def __init__(self, body: bytes) -> None:
        fields = {2: _PLAIN, 3: 0}
        kind, at = packed(body, 0)
        while kind:
            length, at = packed(body, at)
            fields[kind], _ = packed(body[at : at + length], 0)
            at += length
            kind, at = packed(body, at)
        self.size, self._is_plain = fields[3], fields[2] == _PLAIN
        self._data = memoryview(body)[at:]
        if fields[2] not in {_ZSTD, _PLAIN}:
            raise ValueError("a transaction has an unknown compression")

    def events(self) -> Iterator[bytes]:
        """Yield the events, which have no checksums; raise ValueError where they are damaged, or more than stated."""
        left = len(self._data) if self._is_plain else self.size
        source = BytesIO(self._data) if self._is_plain else zstandard.ZstdDecompressor().stream_reader(self._data)
        try:
            while head := source.read(HEADER_SIZE):
                size = int.from_bytes(head[9:13], "little")
                if not HEADER_SIZE <= size <= left:
                    raise ValueError("an event of a compressed transaction is cut short")
                event = head + source.read(size - len(head))
                if len(event) != size:
                    raise ValueError("an event of a compressed transaction is cut short")
                yield event
                left -= size
        except zstandard.ZstdError as error:
            raise ValueError("a compressed transaction is damaged") from error


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
    uuid, tag, numbers = b"", "", dict.fromkeys(_WHOLE, 0)
    while at < end:
        field, at = _whole(event, at)
        if field in _WHOLE:
            numbers[field], at = _whole(event, at)
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
    if not uuid or at > end or numbers[_NUMBER] & 1 or not numbers[_NUMBER]:
        raise ValueError("a tagged GTID is cut short")
    digits = uuid.hex()
    server = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    origin = f"{server}:{tag}" if tag else server
    return Group(0, origin, numbers[_NUMBER] >> 1), numbers[_COMMITTED_FIRST] or numbers[_COMMITTED_HERE]


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
