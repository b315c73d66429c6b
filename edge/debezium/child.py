"""The engine's process: started for a session, fed with acknowledgements, and ended with it.

Guarantees that it ends when this process does, since its standard input does; that no secret is among its arguments, in its
environment or in a file; that what it writes to its standard error is read and not logged, as it may be of rows. Its frames are
those of edge/debezium/frames.py; a hello of another protocol, or other bytes, end the session.
"""

import contextlib
import fcntl
import json
import os
import re
import select
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Final

import msgspec

from edge.debezium.frames import END, HELLO, PROTOCOL, FrameReader
from edge.engine import StreamFailed
from headrace.errors import CorruptInput, NeedsOperator, NotConnected
from headrace.formats import UNREADABLE
from headrace.process import jar_folder

_CLASS = "headrace.debezium.RecordEngine"
#: What is compiled of ours: next to this file in an installed package, among the jars in a checkout.
_OURS = "headrace-debezium.jar"
_READ_BYTES, _PIPE_BYTES = 1 << 18, 1 << 20
_TAIL_BYTES = 4096
_KILL_SECONDS = 5.0
#: What it gets of the edge's environment, which may have secrets.
_ENVIRONMENT: Final = ("PATH", "HOME", "LANG", "LC_ALL", "JAVA_HOME", "KRB5_CONFIG", "KRB5CCNAME")
#: What Java names where a class or a method is not there.
_OTHER_JAR: Final = (
    r"NoClassDefFoundError|ClassNotFoundException|NoSuch(Method|Field)Error|AbstractMethodError|IncompatibleClassChangeError|"
    r"Could not find or load"
)
#: Words of the Java machine, which name no row, and what they mean.
_MACHINE_WORDS: Final = (
    (r"OutOfMemoryError", "it had too little memory: raise [source.debezium] memory_megabytes"),
    (r"UnsupportedClassVersionError", "its Java is too old: [source.debezium] java has to be 21 or newer"),
    (_OTHER_JAR, "a jar is missing or of another release"),
    (r"Could not reserve|Invalid maximum heap", "its Java cannot have [source.debezium] memory_megabytes"),
)
#: What passes by itself: the server is gone, starts, stops, has too many connections, or a former session still has the slot.
_PASSES: Final = re.compile(
    r"SQL state (08|53|55006|57)|Connection|Communications?|timed? ?out|UnknownHost|Socket|EOF", re.IGNORECASE
)

#: What Debezium says where the server no longer has the log from an offset on.
_LOG_GONE: Final = "is trying to read change stream starting at"


#: The exception of our class that keeps the schema history (SchemaHistoryFile.java).
HISTORY_DAMAGED: Final = "SchemaHistoryDamaged"
_CAPTURE_AGAIN: Final = (
    "Move the checkpoint to another folder, set mode = \"initial\" in [snapshot], and run 'headrace edge init': a new epoch "
    "begins, with a copy of all rows."
)


def log_gone(why: str) -> NeedsOperator:
    """Return the error of a log that does not go on where the checkpoint is."""
    return NeedsOperator(
        f"the server no longer has the log from the checkpoint's offset on: {why}",
        hint=f"Changes that were not captured are lost. {_CAPTURE_AGAIN}",
    )


def history_lost(what: str) -> NeedsOperator:
    """Return the error of a schema history without which the log cannot be read."""
    return NeedsOperator(
        f"the schema history in the state folder, by which Debezium reads the binlog, {what}",
        hint="Put the file debezium-schema-history.jsonl back, where there is a copy as new as the checkpoint. Otherwise: "
        f"{_CAPTURE_AGAIN}",
    )


class EngineFailed(StreamFailed):
    """Debezium's engine ended."""

    def lasting(self) -> NeedsOperator:
        """Return the error to end with when it ends again and again at the same place."""
        return NeedsOperator(
            f"{self.message}, each time at the same place",
            hint="Correct what it names, or the properties in [source.debezium]; 'headrace edge doctor' examines them. Then "
            "start the edge again: nothing was skipped or confirmed.",
        )


class Server(msgspec.Struct, frozen=True):
    """What the server is like before anything is made there or read from it."""

    #: What IDENTIFY_SYSTEM answers; a MySQL's `server_uuid`, a MariaDB's `server_id`.
    system_identifier: str
    #: Where its log ended then; 0 where that is not asked.
    log_end: int = 0
    #: Whether the slot is there that Debezium is to read from.
    has_slot: bool = False
    #: Of a binlog: what it depends on; and kind and text of the first events from the checkpoint's offset on, or MariaDB's GTIDs
    #: there, None where none begins there.
    settings: dict[str, str] = {}
    at_offset: list[tuple[str, str]] | None = None


class _Hello(msgspec.Struct):
    protocol: int
    #: None where it could not be asked.
    server: Server | None = None


def class_path(connector: str) -> list[Path]:
    """Return what the engine of a connector runs on; raise NeedsOperator where jars are missing."""
    folder = jar_folder() / f"debezium-{connector}"
    jars = sorted(folder.glob("*.jar"))
    places = (Path(__file__).with_name(_OURS), jar_folder() / "debezium" / _OURS)
    ours = next((place for place in places if place.exists()), None)
    if not any(jar.name.startswith("debezium-embedded-") for jar in jars) or not (folder / "manifest.json").exists():
        raise NeedsOperator(
            f"the jars of Debezium's connector {connector} are not in {folder}",
            hint=f"'headrace jars debezium-{connector}' fetches them once; HEADRACE_JARS names another folder.",
        )
    if ours is None:
        raise NeedsOperator(
            f"there is no {_OURS} in {places[0].parent} or {places[1].parent}",
            hint="In a checkout 'make debezium-engine' compiles it; an installed package has it: install it again.",
        )
    # A driver that Debezium may not bring along: Db2's.
    return [ours, *jars, *sorted((jar_folder() / f"debezium-{connector}-driver").glob("*.jar"))]


class EngineProcess:
    """One process; for the capturing thread alone."""

    def __init__(self, java: str, memory_megabytes: int, path: list[Path], folder: Path) -> None:
        """Start it, in a folder; raise NeedsOperator where that cannot be done."""
        options = [
            f"-Xmx{memory_megabytes}m",
            "-XX:+ExitOnOutOfMemoryError",
            # It stops all of the engine while it collects: with every core, and what it takes follows from how long that takes.
            "-XX:+UseParallelGC",
            # Its own words would be among the frames.
            "-XX:+DisplayVMOutputToStderr",
            "-Xlog:disable",
            "-Xlog:all=warning:stderr",
        ]
        try:
            self._process = subprocess.Popen(
                [java, *options, "-cp", os.pathsep.join(map(str, path)), _CLASS],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                cwd=folder,
                env={name: value for name in _ENVIRONMENT if (value := os.environ.get(name)) is not None},
                # A signal for the edge is no signal for it: what is in flight is acknowledged first.
                start_new_session=True,
            )
        except OSError as error:
            raise NeedsOperator(
                f"Debezium's engine cannot be started: {java}: {error.strerror or error}",
                hint="Install Java 21 or newer, and name it in [source.debezium] java.",
            ) from error
        process = self._process
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None  # noqa: PT018
        self._in, self._out = process.stdin, process.stdout
        os.set_blocking(self._out.fileno(), False)
        with contextlib.suppress(OSError):
            # Some thousand records at a time, where the system has pipes of that size.
            fcntl.fcntl(self._out.fileno(), fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        os.set_blocking(self._in.fileno(), False)
        # What is being sent, and the acknowledgement behind it.
        self._unsent = self._newest = b""
        self._reader = FrameReader()
        self._hello: _Hello | None = None
        self._said = ""
        self._tail = b""
        self._drain = threading.Thread(
            target=self._read_errors, args=(process.stderr,), name="engine errors", daemon=True
        )
        self._drain.start()
        #: How many pieces came.
        self.pieces = 0

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """Return the descriptor on which its frames arrive."""
        return self._out.fileno()

    def greet(self, settings: dict[str, str], *, offset: str | None = None) -> None:
        """Give it its settings; it makes nothing at the server until `begin`, and looks what a binlog has at an offset."""
        greeting = {"protocol": PROTOCOL, "settings": settings, "offset": offset}
        self._unsent += json.dumps(greeting).encode() + b"\n"
        self._send()

    def hello(self, seconds: float) -> Server:
        """Wait until it has asked the server; return what that is like."""
        poll = select.poll()
        poll.register(self._out, select.POLLIN)
        deadline = time.monotonic() + seconds
        while self._hello is None or self._hello.server is None:
            if time.monotonic() > deadline:
                raise NotConnected(f"nothing was heard from Debezium's engine for {seconds:.0f} s")
            poll.poll(1000)
            for _ in self.read():
                raise CorruptInput("Debezium's engine sent a record before it knew where to begin")
        return self._hello.server

    def begin(self, offset: tuple[str, str] | None) -> None:
        """Let it read from an offset, or make what it needs and copy rows where there is none."""
        self._unsent += json.dumps(offset).encode() + b"\n"
        self._send()

    def acknowledge(self, number: int) -> None:
        """Let it mark the records up to this number as processed; where it does not read, the newest number waits."""
        self._newest = b"%d\n" % number
        self._send()

    def _send(self) -> None:
        # A process that has ended is noticed where its frames end.
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            while self._unsent or self._newest:
                if not self._unsent:
                    self._unsent, self._newest = self._newest, b""
                sent: int | None = self._in.write(self._unsent)
                if sent is None:
                    break
                self._unsent = self._unsent[sent:]

    def read(self) -> Iterator[tuple[int, bytes]]:
        """Yield the frames that have arrived, but for the hello; raise EngineFailed or NotConnected when it has ended."""
        self._send()
        try:
            data = os.read(self._out.fileno(), _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise self._failure()
        self.pieces += 1
        for kind, content in self._reader.feed(data):
            if kind == HELLO:
                self._check(content)
            elif self._hello is None:
                raise self._other_protocol()
            elif kind == END:
                self._said = content.decode(errors="replace")
                raise self._failure()
            else:
                yield kind, content

    def _check(self, hello: bytes) -> None:
        try:
            self._hello = msgspec.json.decode(hello, type=_Hello)
        except UNREADABLE as error:
            raise self._other_protocol() from error
        if self._hello.protocol != PROTOCOL:
            raise self._other_protocol()

    @staticmethod
    def _other_protocol() -> NeedsOperator:
        return NeedsOperator(
            f"{_OURS} speaks another protocol than this release of the edge, {PROTOCOL}",
            hint="Install the package again; in a checkout run 'make debezium-engine'.",
        )

    def _failure(self) -> NotConnected | NeedsOperator:
        """Return why it ended, in plain words."""
        try:
            code = self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            return NotConnected("Debezium's engine closed its output and did not end")
        self._drain.join(_KILL_SECONDS)
        tail = self._tail.decode(errors="replace")
        why = next((why for words, why in _MACHINE_WORDS if re.search(words, self._said or tail)), "")
        if self._said:
            reason = f"{self._said}: {why}" if why else self._said
        elif code < 0:
            reason = f"it was ended by {signal.Signals(-code).name}"
        else:
            reason = why or f"exit code {code}"
        if _LOG_GONE in reason:
            return log_gone("Debezium's slot is gone, or was moved, or the log was purged")
        if HISTORY_DAMAGED in reason:
            return history_lost("is damaged")
        message = f"Debezium's engine ended: {reason}"
        if code < 0 or _PASSES.search(reason):
            return NotConnected(message)
        return EngineFailed(message, may_pass=False)

    def _read_errors(self, pipe: IO[bytes]) -> None:
        """Read what it writes to its standard error, however much, so that it never waits for that; keep the end."""
        with contextlib.suppress(OSError, ValueError):
            while data := os.read(pipe.fileno(), 1 << 16):
                self._tail = (self._tail + data)[-_TAIL_BYTES:]

    def close(self) -> None:
        """End it: nothing is lost, since the checkpoint has from where to read again."""
        with contextlib.suppress(OSError):
            self._in.close()
        try:
            self._process.wait(_KILL_SECONDS / 5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._drain.join(_KILL_SECONDS)
        for pipe in (self._out, self._process.stderr):
            if pipe is not None:
                pipe.close()
