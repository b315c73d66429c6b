"""What the engine's process writes to its standard output (RecordEngine.java), and what is read of the records in it: frames,
each of a length, a kind and its content.

    Int32(length of what follows) Byte1('H') JSON {"protocol":6,"server":{"system_identifier":"7000000000000000001",
        "log_end":26738688,"has_slot":false}}: what the server is like before anything is made there (edge/debezium/child.py,
        Server); where it cannot be asked, the protocol alone, and an 'E' behind it
    Int32(…) Byte1('S') Int32(number) JSON of a Connect schema, ahead of the first record that has it, in the place of the
        former one of the topic's keys or values
    Int32(…) Byte1('R') Int32(schema of the key) Int32(schema of the value), -1 for none; Int32(length) of topic, the offset's
        key, the offset, key and value, -1 for null; then their bytes: of a change whose place in the log is that of its
        transaction, the offset and its key are null
    Int32(…) Byte1('E') why the engine ended, in UTF-8

Whatever is no frame raises CorruptInput.
"""

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Annotated, Any, Final, Self

import msgspec

from headrace import files
from headrace.errors import CorruptInput
from headrace.formats import UNREADABLE

#: The version of the frames, which both sides have to have.
PROTOCOL: Final = 6
#: The hello at the beginning of a copy that is kept.
COPY_VERSION: Final = b"%d" % PROTOCOL
#: No frame is larger: Java's arrays are not, and a record of a quarter of that could not be sent.
_LARGEST = 1 << 30
_CHUNK = 1 << 20
#: Bytes of a topic's name: three names of a database and what separates them.
_LONGEST_TOPIC: Final = 1000
#: Of a transaction, frames up to this size in all, in bytes, are kept in memory.
_IN_MEMORY: Final = 8 << 20
_FRAME = struct.Struct(">iB")
_read_frame, _FRAME_BYTES = _FRAME.unpack_from, _FRAME.size
_HEAD = struct.Struct(">7i")
_read_head = _HEAD.unpack_from
#: Where in a record its topic begins.
TOPIC_AT: Final = _HEAD.size
#: What reading raises of a record that is not as its connector writes it.
MALFORMED: Final = (
    ArithmeticError, AttributeError, LookupError, StopIteration, TypeError, struct.error, *UNREADABLE,
)  # fmt: skip
#: Kinds of frames.
HELLO, SCHEMA, RECORD, END = b"HSRE"
_KINDS = b"HSRE"


class EngineRecord(msgspec.Struct):
    """A record as the engine wrote it; key and value are JSON without their schemas."""

    key_schema: int
    value_schema: int
    topic: str
    #: What Debezium would keep in its offset storage, both as JSON; a change within a transaction has none.
    offset_key: bytes
    offset: bytes | None
    key: bytes | None
    value: bytes | None

    @classmethod
    def parse(cls, content: bytes) -> Self:
        """Return the record in a frame's content."""
        try:
            # Once a change: written out, as a loop costs twice the time.
            key_schema, value_schema, length, offset_key, offset, key, value = _read_head(content)
            if not 0 <= length <= _LONGEST_TOPIC or offset_key < -1 or offset < -1 or key < -1 or value < -1:
                raise ValueError("a part has no length")
            at = TOPIC_AT + length
            record = cls(
                key_schema,
                value_schema,
                content[TOPIC_AT:at].decode(),
                b"" if offset_key < 0 else content[at : (at := at + offset_key)],
                None if offset < 0 else content[at : (at := at + offset)],
                None if key < 0 else content[at : (at := at + key)],
                None if value < 0 else content[at : (at := at + value)],
            )
            if at != len(content) or (offset >= 0 > offset_key):
                raise ValueError("a record does not end where its parts do, or lacks one")
        except (ValueError, struct.error) as error:
            raise CorruptInput("a record of Debezium's engine cannot be read") from error
        return record


class FrameReader:
    """Puts frames together from what arrives."""

    def __init__(self) -> None:
        #: What is of a frame that is not whole, and how many bytes are needed until more can be known of it.
        self._rest, self._needed = bytearray(), 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield kind and content of each frame that is whole now."""
        if self._rest:
            self._rest += data
            if len(self._rest) < self._needed:
                return
            data = bytes(self._rest)
            self._rest.clear()
        at, size, self._needed = 0, len(data), _FRAME_BYTES
        while size - at >= _FRAME_BYTES:
            length, kind = _read_frame(data, at)
            if not 1 <= length <= _LARGEST or kind not in _KINDS:
                raise CorruptInput(
                    "what Debezium's engine writes is no frame: its class is of another release, or damaged"
                )
            end = at + 4 + length
            if size < end:
                self._needed = end - at
                break
            yield kind, data[at + 5 : end]
            at = end
        self._rest += data[at:]

    def end(self) -> None:
        """Raise CorruptInput where a frame is not whole."""
        if self._rest:
            raise CorruptInput("frames of Debezium's engine end within one")


def frame(kind: int, content: bytes) -> bytes:
    """Return a frame."""
    return b"%b%c%b" % ((len(content) + 1).to_bytes(4, "big"), kind, content)


def read_frames(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yield the frames of a file; raise CorruptInput where it does not end with one."""
    reader = FrameReader()
    while data := file.read(_CHUNK):
        yield from reader.feed(data)
    reader.end()


class FrameFile:
    """Frames in order: of a transaction, in memory while they are few, or in the state folder; of a copy, there by a name."""

    def __init__(self, folder: Path, name: str = "") -> None:
        """Begin it; raise NoSpace or NeedsOperator, as all of it does where the disk refuses."""
        self._folder, self._path = folder, folder / (name or "transaction")
        self.count = self._bytes = 0
        self._held: list[tuple[int, bytes]] = []
        self._file: IO[bytes] | None = None
        if name:
            with self._on_disk():
                flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
                self._file = os.fdopen(os.open(self._path, flags, 0o600), "w+b")

    def add(self, kind: int, content: bytes) -> None:
        """Add a frame."""
        self.count += kind == RECORD
        self._held.append((kind, content))
        self._bytes += len(content)
        if self._file is not None or self._bytes > _IN_MEMORY:
            self._write()

    def _write(self) -> None:
        with self._on_disk():
            if self._file is None:
                self._file = TemporaryFile(dir=str(self._folder))  # noqa: SIM115 - closed below.
            self._file.write(b"".join(frame(kind, content) for kind, content in self._held))
        self._held.clear()

    def keep(self) -> None:
        """Make what was added durable."""
        assert self._file is not None
        with self._on_disk():
            self._file.flush()
            os.fsync(self._file.fileno())

    def frames(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frames, and close it."""
        if self._file is None:
            yield from self._held
            return
        self._file.seek(0)
        with self._file as file:
            yield from read_frames(file)

    def close(self) -> None:
        """Close it; what has no name is gone."""
        if self._file is not None:
            self._file.close()

    @contextmanager
    def _on_disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise files.problem(self._path, "written", error) from error


_TYPE: Final = "__debezium.source.column."
_UNLIMITED: Final = 2_147_483_647


class Source(msgspec.Struct):
    """What a record's source block has that is needed here: the engine writes these fields alone (RecordJson.java)."""

    ts_ms: int
    db: str = ""
    schema: str = ""
    table: str = ""
    txId: int | str | None = None  # noqa: N815 - Debezium's name.
    server_id: int = 0
    gtid: str | None = None
    file: str = ""
    row: int = 0
    commit_lsn: str | None = None
    change_lsn: str | None = None
    event_serial_no: int | str | None = None
    scn: str | None = None
    commit_scn: str | None = None
    rs_id: str | None = None
    ssn: int | None = None
    redo_thread: int | None = None
    collection: str = ""
    ord: int | None = None
    lsid: str | None = None
    txnNumber: int | None = None  # noqa: N815 - as above.


#: No row.
NULL: Final = msgspec.Raw(b"null")


class Change(msgspec.Struct):
    """A change as Debezium's envelope has it."""

    source: Source
    op: str
    #: Rows, as JSON; MongoDB's are documents as text.
    before: msgspec.Raw = NULL
    after: msgspec.Raw = NULL


class TransactionStatus(msgspec.Struct):
    """What Debezium's transaction metadata has at a transaction's beginning and end."""

    status: str
    #: The transaction's own id, and behind a colon where the message is in the log.
    id: Annotated[str, msgspec.Meta(max_length=500)]
    event_count: Annotated[int, msgspec.Meta(ge=0)] | None = None

    @property
    def transaction(self) -> str:
        """The transaction's own id."""
        return self.id.partition(":")[0]


def described(field: dict[str, Any]) -> tuple[str, int | None, int | None]:
    """Return the source's name of a column's type, its length and its scale."""
    parameters = field.get("parameters") or {}
    length, scale = (_number(parameters.get(f"{_TYPE}{each}")) for each in ("length", "scale"))
    return str(parameters.get(f"{_TYPE}type", "text")), length, scale


def _number(text: str | None) -> int | None:
    number = int(text) if text is not None and text.lstrip("-").isdigit() else None
    return None if number is None or number < 0 or number == _UNLIMITED else number
