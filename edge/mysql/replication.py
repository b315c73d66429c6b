"""The connection to MariaDB or MySQL that carries the binlog, and the server's thread that sends it.

The driver logs in; framing is our own, over its socket: large reads, packets sliced in place. Guarantees that events are whole
and that their checksums hold; that every failure is NotConnected, NeedsOperator, LogTaken, or CorruptInput with the place in
the log.

A server notices only when its TCP gives up, after some fifteen minutes, that an edge's host is gone, and keeps the thread until
then. So the state folder has a note of the thread, with the server's start, since numbers begin again with it: whoever has the
folder next, after a crash or on another host, ends that thread. Of anybody else's thread nothing is ended.
"""

import contextlib
import logging
import select
import socket
import ssl
import struct
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edge.mysql import events
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.checks import FIRST, SHOW_REPLICAS
from edge.mysql.connection import Database
from edge.mysql.errors import CAPTURE_AGAIN, ServerIdTaken, streaming
from headrace import files
from headrace.configuration.edge import Mysql
from headrace.errors import CorruptInput, NeedsOperator, NoSpace, NotConnected
from headrace.formats import UNREADABLE

_log = logging.getLogger(__name__)

_NAME = "dump-thread.json"
#: By how many seconds two readings of a server's start may differ: both are of whole seconds, and its clock is corrected.
_TOLERANCE_SECONDS = 5


class _Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = 1
    #: The server's number of the connection.
    number: int
    #: When the server was started, in seconds since 1970 by its own clock.
    server_started: int


def note_dump_thread(folder: Path, database: Database, number: int) -> None:
    """Note that a connection carries the binlog from now on; a disk that is full leaves the former note."""
    data = msgspec.json.encode(_Note(number=number, server_started=_read_start(database)))
    try:
        files.write_private(folder / _NAME, data)
    except NoSpace as error:
        _log.warning("the server's thread %d is not noted: %s", number, error.message)


def noted_dump_thread(folder: Path, database: Database) -> int:
    """Return the number of the connection that was noted, 0 for none and for one of before the server's last start."""
    try:
        note = msgspec.json.decode((folder / _NAME).read_bytes(), type=_Note)
    except FileNotFoundError:
        return 0
    except (OSError, *UNREADABLE) as error:
        _log.warning("the note of the server's thread in %s is not read: %s", folder / _NAME, error)
        return 0
    is_same = abs(note.server_started - _read_start(database)) <= _TOLERANCE_SECONDS
    return note.number if is_same else 0


def check_server_id(database: Database, server_id: int, former: int) -> None:
    """Raise ServerIdTaken while another replica with this number reads the binlog.

    `former` is the server's number of this edge's connection before, 0 for none: the server may not have noticed yet that it is
    gone, and is ended.
    """
    hosts = replicas(database)
    if server_id == int(database.value("select @@global.server_id")):
        raise NeedsOperator(
            f"server_id {server_id} is the server's own", hint="Give the edge a server_id that no server has."
        )
    if server_id not in {int(row[0]) for row in hosts}:
        return
    if former not in dump_threads(database):
        raise ServerIdTaken(server_id)
    _log.info("ending the server's connection %d that was lost", former)
    database.rows(f"kill {former}")


def dump_threads(database: Database) -> set[int]:
    """Return the numbers of the threads that send the binlog: those of the same user, for one without further privileges."""
    return {int(row[0]) for row in database.rows("show processlist") if str(row[4]).startswith("Binlog Dump")}


def replicas(database: Database) -> list[tuple[Any, ...]]:
    """Return the replicas that read the binlog, their numbers first."""
    newer = not database.is_mariadb and database.release >= SHOW_REPLICAS
    return database.rows("show replicas" if newer else "show slave hosts")


def _read_start(database: Database) -> int:
    """Return when the server was started, in seconds since 1970 by its clock."""
    ((_, seconds),) = database.rows("show global status like 'Uptime'")
    return int(database.value("select unix_timestamp()")) - int(seconds)


_REGISTER, _DUMP, _DUMP_GTID = 0x15, 0x12, 0x1E
#: An idle server sends a heartbeat so often, in seconds.
HEARTBEAT_SECONDS = 1.0
#: So long the server waits until more of the log is taken, in seconds.
_TIMEOUT_SECONDS = 3600
#: A round of reading ends after so many bytes, so that other duties get their turn.
_ROUND_BYTES = 1 << 20
#: A packet of this length goes on in the next one.
_FULL_PACKET = 0xFFFFFF
#: Int24 length, Int8 number.
_PACKET = struct.Struct("<I").unpack_from
#: The CRC-32 of anything with its own CRC-32 behind it.
_WHOLE = 0x2144DF1C
_OK, _END, _ERROR = 0x00, 0xFE, 0xFF
#: For how long the beginning of a file is waited for, in seconds.
_SECONDS = 30.0
#: Of a dump: the server ends it where the log ends.
_NON_BLOCK = 1


def read_file_created(config: Mysql, source: str, file: str) -> int:
    """Return when the server began a file of its binlog, in seconds since 1970 by its clock: the time of its first event."""
    times: list[int] = []

    def note(event: bytes, _end: int, _now_ms: int) -> None:
        if event[4] == events.FORMAT:
            times.append(int.from_bytes(event[:4], "little"))

    stream = ReplicationStream(config, source)
    try:
        stream.start_at(file, FIRST)
        until = time.monotonic() + _SECONDS
        arrives = select.poll()
        arrives.register(stream.fileno(), select.POLLIN)
        with contextlib.suppress(LogEnded):
            while not times and time.monotonic() < until:
                if not stream.read(note, 0):
                    arrives.poll(1000)
    finally:
        stream.close()
    if not times:
        raise NotConnected(f"server {config} did not send the beginning of {file}")
    return times[0]


def check_file(config: Mysql, source: str, checkpoint: MysqlCheckpoint) -> None:
    """Raise NeedsOperator where the file that the checkpoint's place is in was begun at another time than it was.

    A log that was reset has files of the same names, and GTIDs are numbered from 1 again: with transactions as before, its places
    are the same too.
    """
    former = checkpoint.file_created
    if former is not msgspec.UNSET and (created := read_file_created(config, source, checkpoint.file)) != former:
        raise NeedsOperator(
            f"{checkpoint.file} was begun at {created}, and the file of that name that was read at {former} (seconds since "
            "1970): the binlog was reset, or the server was restored from a backup",
            hint=CAPTURE_AGAIN,
        )


class LogEnded(NotConnected):
    """The server ended the stream."""


class ReplicationStream:
    """A connection that carries the binlog from `start_*` on."""

    def __init__(self, config: Mysql, source: str) -> None:
        self._address, self._user, self._server_id = str(config), config.user, config.server_id
        self._database = Database(config, source)
        self._socket: Any = self._database._connection._sock  # noqa: SLF001 - the driver has no public name for its socket.
        self.pid = self._database.pid
        #: Frames that came, heartbeats included.
        self.frames = 0
        self._since = ""
        self._checksummed = False
        # What was received and not framed yet, and the parts of a packet that goes on.
        self._rest = b""
        self._parts: list[bytes] = []
        self._kind = _END

    def start_mariadb(self, gtids: str) -> None:
        """Start after a GTID set of MariaDB's."""
        self._prepare()
        for name, value in (
            ("mariadb_slave_capability", 4),
            ("slave_connect_state", gtids),
            ("slave_gtid_strict_mode", 1),
            ("slave_gtid_ignore_duplicates", 0),
        ):
            self._database.rows(f"set @{name} = %s", value)
        self._register()
        self._begin(struct.pack("<BIHI", _DUMP, 4, 0, self._server_id), gtids or "the beginning of the log")

    def start_mysql(self, gtids: str, encoded: bytes) -> None:
        """Start after a GTID set of MySQL's; `encoded` is the set as the protocol has it."""
        self._prepare()
        self._register()
        head = struct.pack("<BHIIQI", _DUMP_GTID, 4, self._server_id, 0, 4, len(encoded))
        self._begin(head + encoded, gtids or "the beginning of the log")

    def start_at(self, file: str, offset: int) -> None:
        """Start at a place of a file, to be ended where the log ends, whoever else reads with this server id."""
        self._prepare()
        self._database.rows("set @mariadb_slave_capability = %s", 4)
        dump = struct.pack("<BIHI", _DUMP, offset, _NON_BLOCK, 0)
        self._begin(dump + file.encode(), f"{file}:{offset}")

    def read(self, feed: Callable[[bytes, int, int], None], now_ms: int) -> int:
        """Feed the events that have arrived, up to a round of them: each with its end without checksum and the time.

        Never blocks. Returns how many were fed, 0 when none has arrived. Raises what ended the stream.
        """
        data, fed, taken, packet_head = self._rest, 0, 0, _PACKET
        while taken < _ROUND_BYTES:
            more = self._receive()
            if more is None:
                break
            taken += len(more)
            data = data + more if data else more
            at, size = 0, len(data)
            while size - at >= 4:
                length = packet_head(data, at)[0] & _FULL_PACKET
                end = at + 4 + length
                if end > size:
                    break
                if length == _FULL_PACKET or self._parts:
                    # The first one begins with its kind.
                    if not self._parts:
                        self._kind = data[at + 4]
                    self._parts.append(data[at + 4 + (not self._parts) : end])
                    at = end
                    if length == _FULL_PACKET:
                        continue
                    # Of a large event as few copies as can be.
                    data, at = data[at:], 0
                    size = len(data)
                    kind, event = self._kind, b"".join(self._parts)
                    self._parts = []
                else:
                    kind, event = data[at + 4] if length else _END, data[at + 5 : end]
                    at = end
                self.frames += 1
                if kind != _OK:
                    self._rest = b""
                    self._ended(kind, event)
                if length := self._check(event):
                    feed(event, length, now_ms)
                    fed += 1
            data = data[at:] if at else data
        self._rest = data
        return fed

    def fileno(self) -> int:
        """Return the socket, to wait on."""
        return int(self._socket.fileno())

    def close(self) -> None:
        """Close the socket, without a COM_QUIT that the server would not read."""
        # The driver's own reader would keep the socket open.
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._database._connection._force_close()  # noqa: SLF001 - the driver's close sends COM_QUIT.

    def _check(self, event: bytes) -> int:
        """Return where an event ends without its checksum; raise CorruptInput when it is not whole."""
        size = len(event)
        if size < events.HEADER_SIZE or events.HEADER(event)[3] != size:
            raise self._corrupt(event, "an event is cut short")
        end = size
        kind = event[4]
        if kind == events.FORMAT:
            self._checksummed = size > events.HEADER_SIZE + 62 and events.is_checksummed(event)
            end -= events.CHECKSUM_SIZE + 1
        elif self._checksummed:
            end -= events.CHECKSUM_SIZE
        if self._checksummed and zlib.crc32(event) != _WHOLE:
            raise self._corrupt(event, "the checksum of an event does not hold")
        return end

    def _corrupt(self, event: bytes, what: str) -> CorruptInput:
        end = int.from_bytes(event[13:17], "little") if len(event) >= events.HEADER_SIZE else 0
        kind = event[4] if len(event) > 4 else 0
        return CorruptInput(
            f"{what}: type {kind}, {len(event)} bytes, ending at offset {end} of a binlog file of {self._address}, "
            f"somewhere after {self._since}",
            hint="Nothing was skipped or confirmed. Start the edge again; if it stops there again, the binlog file is damaged: "
            "look at it with mariadb-binlog --verify-binlog-checksum, start a new epoch and copy the tables again.",
        ).not_of_content()

    def _receive(self) -> bytes | None:
        try:
            more: bytes = self._socket.recv(_ROUND_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return None
        except OSError as error:
            raise NotConnected(f"the connection to {self._address} was lost: {error}") from error
        if not more:
            raise NotConnected(f"the connection to {self._address} was lost: the server closed it")
        return more

    def _ended(self, kind: int, body: bytes) -> None:
        if kind != _ERROR:
            raise LogEnded(f"server {self._address} ended the stream")
        number = int.from_bytes(body[:2], "little")
        words = body[2:].decode(errors="replace")
        words = words[6:] if words.startswith("#") else words
        raise streaming(number, words, self._address, self._user, self._server_id, self._since)

    def _prepare(self) -> None:
        nanoseconds = int(HEARTBEAT_SECONDS * 1e9)
        # Of the event that names the first file; from then on it is in each file.
        self._checksummed = (self._database.variable("binlog_checksum") or "").upper() == "CRC32"
        for name in ("master", "source"):
            self._database.rows(f"set @{name}_binlog_checksum = @@global.binlog_checksum")
            self._database.rows(f"set @{name}_heartbeat_period = {nanoseconds}")
        # Nothing is read of it while a prepared transaction is decoded, or while what was read is not acknowledged: a server that
        # gives up after its usual 60 s would have all of that read again, and again.
        self._database.rows(f"set session net_write_timeout = {_TIMEOUT_SECONDS}")

    def _register(self) -> None:
        """Int8 command, Int32 server id, strings host, user and password, Int16 port, Int32 rank, Int32 master id."""
        host = b"headrace"
        body = struct.pack("<BIB", _REGISTER, self._server_id, len(host)) + host + struct.pack("<BBHII", 0, 0, 0, 0, 0)
        self._send(body)
        with self._database._translate():  # noqa: SLF001 - one package.
            self._database._connection._read_ok_packet()  # noqa: SLF001 - the driver has no command for it.

    def _begin(self, command: bytes, since: str) -> None:
        self._since = since
        self._send(command)
        self._socket.setblocking(False)

    def _send(self, body: bytes) -> None:
        try:
            self._socket.sendall(len(body).to_bytes(3, "little") + b"\0" + body)
            self._database._connection._next_seq_id = 1  # noqa: SLF001 - as after every command.
        except OSError as error:
            raise NotConnected(f"the connection to {self._address} was lost: {error}") from error
