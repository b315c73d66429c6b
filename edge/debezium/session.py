"""A session of the agent with a process of Debezium's engine: its frames become records, and what is durable is confirmed to it.

Called by the agent, through edge/debezium/engine.py.
"""

import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from edge.debezium.checkpoint import COPY, DebeziumCheckpoint, Marks
from edge.debezium.child import EngineProcess, Server
from edge.debezium.frames import COPY_VERSION, HELLO, SCHEMA, Source, read_frames
from edge.debezium.rows import Rows
from edge.debezium.stream import ROUND, ROUND_BYTES, EngineStream
from edge.records.batcher import Batcher
from edge.records.column_policy import Policy
from edge.records.transaction_writer import TransactionWriter
from edge.snapshot.table_history import TableHistory
from headrace.configuration.databases import Debezium
from headrace.configuration.edge import EdgeFile
from headrace.errors import CorruptInput, NeedsOperator

#: The longest time until the process says what the server is like, and silence of a proven connector in an `init`, in seconds.
SILENCE_SECONDS: Final = 120.0


def new_placeholder() -> str:
    """Return what Debezium writes for a value that the log does not carry: nothing that a row could have."""
    return f"headrace-unavailable-{secrets.token_hex(16)}"


def _copied(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the frames of a copy; raise NeedsOperator where the file is not whole, or of another release."""
    try:
        with path.open("rb") as file:
            frames = read_frames(file)
            if next(frames, None) != (HELLO, COPY_VERSION):
                raise CorruptInput("a copy in another form")
            yield from frames
    except (OSError, CorruptInput) as error:
        raise NeedsOperator(
            f"{path}, which holds rows that are not acknowledged yet, is lost, damaged or of another release",
            hint="Move the checkpoint to another folder, and run 'headrace edge init': a new epoch begins, with a new copy.",
        ) from error


class DebeziumSession:
    """One process of Debezium's engine, read into a batcher."""

    pid = 0
    replies_requested = 0
    #: Transactions are not named by what 'headrace edge pass' takes.
    present = ""

    def __init__(
        self, config: EdgeFile, names: Debezium, process: EngineProcess, marks: Marks, offset: str | None
    ) -> None:
        self._config, self._names, self._process, self._marks = config, names, process, marks
        self._folder = config.resolve(config.state.folder)
        self._arrived: Iterator[tuple[int, bytes]] = iter(())
        self._has_frames = False
        self._signs_of_life = 0
        self._placeholder = new_placeholder()
        self.fileno = process.fileno
        process.greet(names.settings("no_data", self._placeholder), offset=offset)

    def log_end(self) -> int:
        """Return where the log ended at the process's start; raise NotConnected where the process cannot say so."""
        return self.server().log_end

    def server(self) -> Server:
        """Return what the server is like; raise NotConnected where the process cannot say so."""
        return self._process.hello(SILENCE_SECONDS)

    def start(self, checkpoint: DebeziumCheckpoint, batcher: Batcher, history: TableHistory | None = None) -> None:
        """Let Debezium read from the checkpoint's offset, behind the copy if that is not acknowledged."""
        config, placeholder = self._config, self._placeholder
        offset = checkpoint.offset
        assert offset is not None
        # Not before: what the session before had acknowledged was written until now.
        self._marks.restart()
        policy = Policy.of(config)
        self._rows = Rows(checkpoint.connector, config.source.name, policy, placeholder)
        writer: TransactionWriter[Any] = TransactionWriter(
            batcher,
            epoch=checkpoint.position.epoch,
            largest=config.records.largest_bytes,
            records=config.records,
            no_table=self._rows.connector.table(config.source.name, Source(ts_ms=0)),
            history=history,
        )
        self._stream = EngineStream(checkpoint, self._folder, self._rows, writer, self._marks)
        if checkpoint.copy_ahead:
            copied = Rows(checkpoint.connector, config.source.name, policy, placeholder)
            self._stream.write_copy(_copied(self._folder / COPY), offset, copied)
        self._process.begin(offset)

    def snapshots(self) -> None:
        """Return None: Debezium copies rows when the source is made, and no others are."""

    @property
    def in_transaction(self) -> bool:
        """Whether a transaction is partly in the batcher."""
        return self._stream.is_writing

    @property
    def passed(self) -> int:
        """The place up to which the log is read."""
        return self._stream.reached

    @property
    def frames(self) -> int:
        """How many pieces came, and how often a process that may be silent for long was seen to run."""
        return self._process.pieces + self._signs_of_life

    @property
    def _may_be_silent(self) -> bool:
        """Whether a process that works may send nothing for long."""
        # Db2 has no heartbeats, Oracle none while it mines, and SQL Server none while it reads its schema history.
        connector = self._names.connector
        return connector in {"db2", "oracle"} or (connector == "sqlserver" and not self._has_frames)

    def read(self, now_ms: int) -> int:
        """Take frames that have arrived, and write the transactions that end with them, about a round of each."""
        stream = self._stream
        stream.now_ms = now_ms
        fed, size, pieces = 0, 0, self._process.pieces
        while fed < ROUND and size < ROUND_BYTES:
            if stream.is_writing:
                fed += stream.write()
                if self.in_transaction:
                    # It has more: the outbox may be full now.
                    break
                continue
            frame = next(self._arrived, None)
            if frame is None:
                if fed:
                    break
                self._arrived = self._process.read()
                frame = next(self._arrived, None)
                if frame is None:
                    break
            fed, self._has_frames = fed + 1, True
            kind, content = frame
            size += len(content)
            if kind == SCHEMA:
                self._rows.add_schema(content)
            else:
                stream.take(content)
        stream.look(time.monotonic(), heard=bool(fed) or self._process.pieces != pieces)
        return fed

    def confirm(self, place: int, now_ms: int, *, wants_reply: bool = False) -> None:  # noqa: ARG002 - of the port.
        """Let Debezium report to the server what is durable in the checkpoint."""
        self._signs_of_life += wants_reply and self._may_be_silent and self._process.is_running
        if number := self._marks.number_at(place):
            self._process.acknowledge(number)
            (self._folder / COPY).unlink(missing_ok=True)

    def flush(self, seconds: float) -> None:
        """Wait for nothing: what the server has not heard is sent again, and dropped."""

    def close(self) -> None:
        """End the process."""
        if hasattr(self, "_stream"):
            self._stream.close()
        self._process.close()
