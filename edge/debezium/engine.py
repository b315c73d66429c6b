"""A source that Debezium reads, as an engine of the agent (edge/engine.py): ties its process, checkpoint and stream together.

The checkpoint holds Debezium's own offset, at the place that it confirms: Debezium keeps none itself, and reads from that one.
What it copies of rows that are there before is kept in the state folder until all of it is acknowledged, so that a copy is the
same whenever it is sent again.
"""

import contextlib
import select
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from edge.debezium.checkpoint import (
    BINLOGS,
    COPY,
    DebeziumCheckpoint,
    Marks,
    check_begun,
    check_history,
    check_log,
    check_settings,
    history_bytes,
    make_history,
    place_of,
    restart_offset,
)
from edge.debezium.child import EngineProcess, Server, class_path
from edge.debezium.frames import COPY_VERSION, HELLO, RECORD, EngineRecord, FrameFile
from edge.debezium.rows import Rows
from edge.debezium.session import SILENCE_SECONDS, DebeziumSession, new_placeholder
from edge.debezium.stream import HEARTBEAT_TOPIC, TRANSACTION_TOPIC
from edge.delivery.outbox import Outbox
from edge.engine import Adoption, CheckpointChanged, Retirement
from edge.observability.figures import Figures
from edge.progress.checkpoint import State
from edge.progress.notes import all_acknowledged
from headrace.configuration.databases import UNPROVEN, Debezium
from headrace.configuration.edge import EdgeFile
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position, new_epoch

_REPORT_ROWS = 100_000


class DebeziumEngine:
    """One source; a place is a number of its connector's log (edge/debezium/checkpoint.py)."""

    def __init__(self, config: EdgeFile, names: Debezium) -> None:
        self._config, self._names = config, names
        self.address = str(names)
        self.state: State[Any] = State(config.resolve(config.state.folder), DebeziumCheckpoint)
        self._has_binlog = names.connector in BINLOGS
        self._has_history = names.connector not in {"postgres", "mongodb"}
        self._marks = Marks()

    def open(self, checkpoint: DebeziumCheckpoint, former_pid: int) -> "DebeziumSession":  # noqa: ARG002 - of the port.
        """Return a session whose process starts; it ends with this one, so no former one has to be ended."""
        self._check(checkpoint)
        self._check_properties(checkpoint)
        offset = checkpoint.offset
        assert offset is not None
        if self._has_history:
            check_history(self.state.folder, checkpoint.history_bytes)
        session = DebeziumSession(self._config, self._names, self._process(), self._marks, offset[1])
        try:
            # Before it reads: a slot of that name at another server would answer too.
            server = session.server()
            _check_system(server.system_identifier, checkpoint)
            if self._has_binlog:
                check_settings(server)
                check_log(server, offset[1])
        except BaseException:
            session.close()
            raise
        return session

    def advanced(self, checkpoint: DebeziumCheckpoint, position: Position, place: int) -> DebeziumCheckpoint:
        """Return the checkpoint moved to an acknowledged position and place."""
        moved = checkpoint.advanced(position, place, self._marks.offset_at(place))
        return (
            msgspec.structs.replace(moved, history_bytes=history_bytes(self.state.folder))
            if self._has_history
            else moved
        )

    def watch(self, checkpoint: Callable[[], Any], figures: Figures, outbox: Outbox) -> "NoWatch":  # noqa: ARG002 - of the port.
        """Look at nothing: Debezium alone knows the server."""
        return NoWatch()

    def initialise(
        self, checkpoint: DebeziumCheckpoint | None, adoption: Adoption | None, report: Callable[[str], None]
    ) -> DebeziumCheckpoint:
        """Let Debezium make what it needs, keep what it copies, and write the checkpoint with its first offset."""
        if adoption is not None:
            raise NeedsOperator(
                "a source that Debezium reads cannot be adopted: its offset is lost with its checkpoint",
                hint="Run 'headrace edge init' without --adopt, with mode = \"initial\" in [snapshot]: a new epoch begins.",
            )
        if checkpoint is not None and checkpoint.stage == "made":
            self._check(checkpoint)
            report(f"Already made: checkpoint {self.state.path}")
            return checkpoint
        if checkpoint is None:
            checkpoint = DebeziumCheckpoint(
                source=self._config.source.name,
                stage="making",
                acknowledged=str(Position.start(new_epoch())),
                connector=self._names.connector,
                properties=self._names.fingerprint(),
            )
            self.state.write(checkpoint)
        rows, offset, system = self._first_offset(report)
        place = place_of(self._names.connector, offset[1])
        made = msgspec.structs.replace(
            checkpoint,
            stage="made",
            connector=self._names.connector,
            confirmed_place=place - bool(rows),
            copy_ahead=bool(rows),
            offset=offset,
            properties=self._names.fingerprint(),
            system_identifier=system,
            history_bytes=history_bytes(self.state.folder) if self._has_history else 0,
        )
        self.state.write(made)
        report(f"Wrote checkpoint {self.state.path}: epoch {made.position.epoch}, {rows} rows copied")
        return made

    def _first_offset(self, report: Callable[[str], None]) -> tuple[int, tuple[str, str], str]:
        """Run Debezium until what it copies is copied, and keep the rows.

        Returns their number, from where to read on, and the server's system identifier.
        """
        settings = self._names.settings(self._config.snapshot.mode, new_placeholder())
        process = self._process()
        report(f"Debezium's connector {self._names.connector} makes what it needs at {self.address}")
        try:
            process.greet(settings)
            server = process.hello(SILENCE_SECONDS)
            self._check_slot(server, settings.get("slot.name", ""))
            # Of a server that is not a MySQL or MariaDB nothing is known that could be wrong.
            check_settings(server)
            check_begun(server)
            if self._has_history:
                make_history(self.state.folder)
            process.begin(None)
            copy = FrameFile(self.state.folder, COPY)
            with contextlib.closing(copy):
                copy.add(HELLO, COPY_VERSION)
                for kind, content in _frames(process, may_be_silent=self._names.connector in UNPROVEN):
                    if kind == RECORD:
                        record = EngineRecord.parse(content)
                        if offset := self._first_place(record):
                            copy.keep()
                            return copy.count, (record.offset_key.decode(), offset), server.system_identifier
                        if record.topic == HEARTBEAT_TOPIC:
                            continue
                        change = None if record.topic == TRANSACTION_TOPIC else Rows.parse(record)
                        if change is None or change.op != "r":
                            raise NotConnected("Debezium's engine sent a change ahead of its first place: run it again")
                        if (copy.count + 1) % _REPORT_ROWS == 0:
                            report(f"{copy.count + 1} rows copied")
                    copy.add(kind, content)
        finally:
            process.close()
        raise NotConnected("Debezium's engine ended")

    def _first_place(self, record: EngineRecord) -> str | None:
        """Return the offset of a record from which to read on behind the copy; None for other records."""
        is_between = record.topic == HEARTBEAT_TOPIC or (self._has_binlog and record.topic == TRANSACTION_TOPIC)
        if is_between and record.offset is not None:
            return restart_offset(self._names.connector, record.offset)
        return None

    def _check_slot(self, server: Server, slot: str) -> None:
        """Raise NeedsOperator where the slot is there, unless it is only read from.

        Debezium would copy what it sees now, and read the log from where the slot is, which has a part of that too.
        """
        if server.has_slot and self._config.snapshot.mode != "no_data":
            raise NeedsOperator(
                f"slot {slot} is there already: rows copied now would come again from its log",
                hint="It is of an 'init' that was interrupted, of another reader, or of an edge whose checkpoint is gone. Where "
                f"nobody needs it, run 'select pg_drop_replication_slot('{slot}')' there, and 'headrace edge init' again; else "
                "name another slot.",
            )

    def retirement(self, checkpoint: DebeziumCheckpoint | None) -> Retirement:  # noqa: ARG002 - of the port.
        """Refuse: what Debezium made at the server is removed by hand."""
        made = (
            "Drop its slot and publication by hand" if self._names.connector == "postgres" else "Nothing was made there"
        )
        raise NeedsOperator(
            f"what Debezium made at {self.address} is not removed by the edge",
            hint=f"{made}; then 'headrace edge retire --state-only --force'.",
        )

    def condition(self, table: str, keys: list[dict[str, Any]]) -> str:  # noqa: ARG002 - of the port.
        """Refuse: rows are copied by Debezium alone."""
        raise NeedsOperator(f"{table} cannot be copied: its source is read by Debezium", hint="See docs/debezium.md.")

    def server_status(self, checkpoint: DebeziumCheckpoint | None) -> dict[str, str | int | None]:
        """Return the confirmed offset; what the server keeps is not looked at."""
        return {
            "connector": self._names.connector,
            "confirmed_offset": checkpoint.place if checkpoint else None,
            "retained_wal_bytes": None,
        }

    def _check(self, checkpoint: DebeziumCheckpoint) -> None:
        if checkpoint.connector != self._names.connector:
            raise NeedsOperator(
                f"the checkpoint is of Debezium's connector {checkpoint.connector!r}, and [source.debezium] names "
                f"{self._names.connector!r}",
                hint="Put the connector back, or give this one a state folder of its own.",
            )

    def _check_properties(self, checkpoint: DebeziumCheckpoint) -> None:
        """Raise NeedsOperator where a transaction may be sent in part by other properties than the file has now.

        What is sent of it again is known by its number in the transaction. Raises CheckpointChanged where nothing
        is sent in part: the checkpoint gets the new properties before anything is sent by them.
        """
        if checkpoint.properties == self._names.fingerprint():
            return
        is_within = checkpoint.copy_ahead or checkpoint.position.commit >= checkpoint.confirmed
        if is_within or not all_acknowledged(self.state.folder, checkpoint):
            raise NeedsOperator(
                "[source.debezium] properties are others than before, while a transaction or the copy may be sent in part",
                hint="Put the former ones back, start the edge, and stop it by SIGTERM once everything is acknowledged; then "
                "change them.",
            )
        raise CheckpointChanged(
            "[source.debezium] properties are others than before",
            msgspec.structs.replace(checkpoint, properties=self._names.fingerprint()),
        )

    def _process(self) -> EngineProcess:
        names = self._names
        return EngineProcess(names.java, names.memory_megabytes, class_path(names.connector), self.state.folder)


def _check_system(system: str, checkpoint: DebeziumCheckpoint) -> None:
    """Raise NeedsOperator unless the server is that of the checkpoint, or a copy of it."""
    if system != checkpoint.system_identifier:
        raise NeedsOperator(
            f"the server is another one: its system identifier is {system}, the checkpoint was made with "
            f"{checkpoint.system_identifier}",
            hint="Connect to the former server; or move the checkpoint to another folder, and run 'headrace edge init' here: a "
            "new epoch begins.",
        )


def _frames(process: EngineProcess, *, may_be_silent: bool) -> Iterator[tuple[int, bytes]]:
    """Yield frames as they come; raise NotConnected when nothing comes for long, unless the process may be silent.

    `read` raises where it has ended.
    """
    poll = select.poll()
    poll.register(process.fileno(), select.POLLIN)
    heard_at, pieces = time.monotonic(), process.pieces
    while True:
        yield from process.read()
        now = time.monotonic()
        if process.pieces != pieces:
            heard_at, pieces = now, process.pieces
        elif now - heard_at > SILENCE_SECONDS and not may_be_silent:
            raise NotConnected(f"nothing was heard from Debezium's engine for {SILENCE_SECONDS:.0f} s")
        poll.poll(1000)


class NoWatch:
    """Looks at nothing."""

    def stop(self) -> None:
        """Do nothing."""
