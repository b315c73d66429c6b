"""A replication connection to PostgreSQL: the one that carries the log.

Guarantees that nothing but `confirm` allows the server to discard log, and that every failure is NotConnected (try again) or
NeedsOperator (with what fixes it). psycopg 3 gives the log's frames and the server's keepalives as they are, and sends no
feedback of its own.
"""

import logging
import select
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple, NoReturn

from edge.postgres.checkpoint import format_lsn, parse_lsn
from edge.postgres.connection import Diagnostic, Error, connect, pq, text
from edge.postgres.errors import CAPTURE_AGAIN, quoted, running, stream_failed
from edge.postgres.pgoutput import VIEWED_BYTES
from headrace.configuration.edge import Postgresql
from headrace.errors import NeedsOperator, NotConnected

_log = logging.getLogger(__name__)

#: Streaming replication protocol, XLogData: Byte1('w'), Int64 start, Int64 end, Int64 clock, then the message.
_XLOG_DATA, _XLOG_HEADER = ord("w"), 25
#: Primary keepalive: Byte1('k'), Int64 end of the log read so far, Int64 clock, Byte1 whether an answer is wanted.
_KEEPALIVE, _KEEPALIVE_BODY = ord("k"), struct.Struct(">QqB")
#: Standby status update: Byte1('r'), Int64 written, Int64 flushed, Int64 applied, Int64 clock, Byte1 answer wanted.
_FEEDBACK = struct.Struct(">cQQQqB")
#: Object not in prerequisite state: with this PostgreSQL 18 warns that it skips a publication which is not there.
_MISSING = "55000"
#: A round of reading ends after so many messages or bytes, so that other duties get their turn.
_ROUND_MESSAGES, _ROUND_BYTES = 512, 1 << 20
#: PostgreSQL counts microseconds from 2000-01-01.
_EPOCH_2000_MICROSECONDS = 946_684_800_000_000


def output_options(publication: str) -> dict[str, str]:
    """Return the options of pgoutput."""
    # Logical messages always come: those that are not wanted count in positions all the same.
    return {"proto_version": "1", "publication_names": quoted(publication), "messages": "true"}


class System(NamedTuple):
    """What IDENTIFY_SYSTEM answers."""

    identifier: str
    timeline: int
    lsn: int


class ReplicationStream:
    """A replication connection: identifies the system, then carries the slot's log."""

    def __init__(self, config: Postgresql, source: str) -> None:
        self._address = str(config)
        self._user = config.user
        self._connection = connect(config, source, replication="database")
        self._connection.add_notice_handler(self._noticed)
        self._raw = self._connection.pgconn
        self._publication = self._unpublished = ""
        #: The server's process that serves this connection.
        self.pid = self._connection.info.backend_pid
        #: LSN up to which the server has read its log for this stream, as of its last keepalive; 0 before.
        self.reached = 0
        #: Frames that came, keepalives included.
        self.frames = 0
        #: How often the server has requested a reply.
        self.replies_requested = 0

    def identify(self) -> System:
        """Return the server's identity, its timeline and how far its log reaches."""
        with self._translated():
            result = self._raw.exec_(b"IDENTIFY_SYSTEM")
        self._check(result, pq.ExecStatus.TUPLES_OK)
        identifier, timeline, lsn = (text(result.get_value(0, column)) for column in range(3))
        return System(identifier, int(timeline), parse_lsn(lsn))

    def timeline_history(self, timeline: int) -> str:
        """Return the history file of a timeline."""
        with self._translated():
            result = self._raw.exec_(f"TIMELINE_HISTORY {timeline}".encode())
        self._check(result, pq.ExecStatus.TUPLES_OK)
        return text(result.get_value(0, 1))

    def make_failover(self, slot: str) -> None:
        """Make a slot one that a standby keeps ready; it must not be in use."""
        with self._translated():
            result = self._raw.exec_(f"ALTER_REPLICATION_SLOT {quoted(slot)} ( FAILOVER true )".encode())
        self._check(result, pq.ExecStatus.COMMAND_OK)

    def start(self, slot: str, publication: str, lsn: int) -> None:
        """Start the stream at `lsn`, or at what was confirmed to the slot if that is later.

        Raises SlotTaken while another process reads the slot.
        """
        self._publication = publication
        options = ", ".join(f"{name} '{value}'" for name, value in output_options(publication).items())
        command = f"START_REPLICATION SLOT {quoted(slot)} LOGICAL {format_lsn(lsn)} ({options})"
        with self._translated():
            result = self._raw.exec_(command.encode())
        self._check(result, pq.ExecStatus.COPY_BOTH, slot)
        self._raw.nonblocking = 1

    def read(self, feed: Callable[[bytes, int], None], now_ms: int, *, with_place: bool = False) -> int:
        """Feed the messages that have arrived, up to a round of them; return how many, 0 when none has.

        Those above VIEWED_BYTES are views that last as long as the call. `with_place`: each with the 24 bytes of its frame ahead
        of it, of which the first eight are its LSN.

        Never blocks. Raises what ended the stream. A keepalive is only noted, in `reached` and `replies_requested`.
        """
        get, begins = self._raw.get_copy_data, 1 if with_place else _XLOG_HEADER
        fed = size = taken = frames = 0
        try:
            while fed < _ROUND_MESSAGES and taken < _ROUND_BYTES:
                size, frame = get(1)
                if size == 0:
                    self._raw.consume_input()
                    size, frame = get(1)
                if size <= 0:
                    break
                frames += 1
                if frame[0] == _XLOG_DATA:
                    # Of a large one the driver's own copy is enough.
                    message = frame[begins:]
                    feed(message if size > VIEWED_BYTES else bytes(message), now_ms)  # type: ignore[arg-type]
                    fed += 1
                    taken += size
                elif frame[0] == _KEEPALIVE and not self._unpublished:
                    self.reached, _, wants_reply = _KEEPALIVE_BODY.unpack_from(frame, 1)
                    self.replies_requested += wants_reply
        except Error as error:
            raise self._lost(error) from error
        self.frames += frames
        if size < 0:
            self._ended()
        if self._unpublished:
            raise NeedsOperator(
                f"the server no longer publishes: {self._unpublished}; changes after {format_lsn(self.reached)} are missing",
                hint=CAPTURE_AGAIN,
            ).not_of_content()
        return fed

    def confirm(self, lsn: int, now_ms: int, *, wants_reply: bool = False) -> None:
        """Report that the log below `lsn` may be discarded, and that the edge is alive; `wants_reply`: and request a reply."""
        clock = now_ms * 1000 - _EPOCH_2000_MICROSECONDS
        with self._translated():
            self._raw.put_copy_data(_FEEDBACK.pack(b"r", lsn, lsn, lsn, clock, wants_reply))
            self._raw.flush()

    def flush(self, seconds: float) -> None:
        """Wait at most `seconds` until what was confirmed has left this machine."""
        poll = select.poll()
        poll.register(self._raw.socket, select.POLLOUT)
        with self._translated():
            while self._raw.flush() == 1 and poll.poll(seconds * 1000):
                pass

    def fileno(self) -> int:
        """Return the socket, to wait on."""
        with self._translated():
            return self._raw.socket

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _ended(self) -> NoReturn:
        with self._translated():
            result = self._raw.get_result()
        message = result.get_error_message() if result is not None else ""
        state = result.error_field(pq.DiagnosticField.SQLSTATE) if result is not None else None
        words = message or "the server ended the stream"
        raise stream_failed(text(state) or None, words, self._address, self._user).not_of_content()

    def _noticed(self, diagnostic: Diagnostic) -> None:
        words = diagnostic.message_primary or ""
        _log.warning("the server of %s reports: %s", self._address, words)
        # In whatever language.
        if diagnostic.sqlstate == _MISSING and self._publication and self._publication in words:
            self._unpublished = words

    def _check(self, result: pq.abc.PGresult, expected: pq.ExecStatus, slot: str = "") -> None:
        if result.status != expected:
            state = text(result.error_field(pq.DiagnosticField.SQLSTATE))
            raise running(state or None, result.get_error_message(), self._address, self._user, slot=slot)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Error as error:
            raise self._lost(error) from error

    def _lost(self, error: Error) -> NotConnected:
        return NotConnected(f"the connection to {self._address} was lost: {' '.join(str(error).split())[:300]}")
