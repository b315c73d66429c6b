"""One verification: a snapshot of the edge's own database that is held open, and the steps that are computed in it.

The steps run one after the other in a thread of the session, which alone uses the connection. A session in which nothing is asked
for `IDLE_SECONDS` is over: what runs there is ended at the server, and the snapshot is gone. Made by verify.py.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from edge.progress.checkpoint import Checkpoint
from headrace import doors
from headrace.errors import UNEXPECTED, CorruptInput, ReplicationError
from headrace.verify import contract
from headrace.verify.comparison import Database, Engine, SourceSide, SourceTable
from headrace.verify.contract import IDLE_SECONDS, MOST_COLUMNS, Failure, Reply

_log = logging.getLogger(__name__)

#: Between looks whether anybody still asks, in seconds.
_LOOK_SECONDS = 1.0
#: After so many seconds without a step the server is asked for nothing, so that it does not end the snapshot as idle.
_KEEP_SECONDS = IDLE_SECONDS / 4


class Verification:
    """A session; `ask` is called by one thread at a time."""

    def __init__(
        self,
        session: str,
        caller: str,
        engine: Engine,
        connect: Callable[[bool], AbstractContextManager[Database]],
        leaving: Callable[[list[SourceTable]], list[SourceTable]],
        idle_seconds: float = IDLE_SECONDS,
        *,
        checkpoint: Callable[[], Checkpoint] | None = None,
    ) -> None:
        """`checkpoint` returns the edge's own; without it the database's log shows whether the source is idle."""
        self.session, self.caller = session, caller
        self._engine = engine
        self._connect, self._leaving, self._checkpoint = connect, leaving, checkpoint
        self._idle_seconds = idle_seconds
        self._asked_at = time.monotonic()
        self._step = -1
        #: The answer of the last step, once it is there.
        self._reply: Reply | None = None
        self._answered = threading.Event()
        self._steps: queue.SimpleQueue[contract.Step | None] = queue.SimpleQueue()
        self._over = threading.Event()
        self._rows = 0
        self._database: Database | None = None
        self._tables: list[SourceTable] | None = None
        for work, name in ((self._run, "verification"), (self._watch, "verification watch")):
            threading.Thread(target=work, name=name, daemon=True).start()

    @property
    def is_over(self) -> bool:
        """Whether it was ended, by who asks or for want of it."""
        return self._over.is_set()

    def has_answer(self, step: int) -> bool:
        """Whether a step is the last one, and its answer is there."""
        return step == self._step and self._answered.is_set()

    def keep(self) -> None:
        """Note that somebody still asks."""
        self._asked_at = time.monotonic()

    def idle_for(self) -> float:
        """Return for how many seconds nothing was asked."""
        return time.monotonic() - self._asked_at

    def ask(self, step: int, what: contract.Step | None, seconds: float) -> Reply:
        """Return the answer of a step, or how far it is after some seconds; raise CorruptInput for one out of turn."""
        self.keep()
        if step == self._step + 1 and what is not None and self._answered.is_set() == (step > 0):
            self._step, self._rows, self._reply = step, 0, None
            self._answered.clear()
            self._steps.put(what)
        elif step != self._step:
            raise CorruptInput(f"step {step} of a verification does not follow step {self._step}")
        self._answered.wait(seconds)
        self.keep()
        return self._reply or Reply(state="working", rows=self._rows)

    def end(self) -> None:
        """End it, and what runs in it."""
        if self._over.is_set():
            return
        self._over.set()
        self._steps.put(None)
        database = self._database
        if database is not None and not self._answered.is_set():
            database.interrupt()

    def _watch(self) -> None:
        while not self._over.wait(_LOOK_SECONDS):
            if self.idle_for() > self._idle_seconds:
                _log.warning(
                    "the verification of %r is ended: nothing was asked for %.0f s", self.caller, self.idle_for()
                )
                self.end()

    def _run(self) -> None:
        try:
            first = self._steps.get()
            if not isinstance(first, contract.Open):
                self._answer(
                    Reply(state="failed", failure=Failure(kind="CorruptInput", message="no snapshot was taken"))
                )
                return
            with self._connect(first.placed) as database:
                self._database = database
                _log.info("a snapshot is held for the verification of %r", self.caller)
                self._answer(Reply(state="done", result=self._open(database)))
                while (what := self._next_step(database)) is not None and not self._over.is_set():
                    self._answer(self._try_step(database, what))
        except ReplicationError as error:
            if self._database is not None:
                _log.warning("the snapshot of the verification of %r is lost: %s", self.caller, error.message)
            self._answer(Reply(state="failed", failure=contract.failure(error)))
        except Exception as error:  # noqa: BLE001 - the verification fails, the edge goes on.
            doors.log_unexpected(_log, "a verification failed", error)
            self._answer(Reply(state="failed", failure=_unexpected_failure()))
        finally:
            self._database = None
            self._over.set()
            _log.info("the verification of %r is over", self.caller)

    def _next_step(self, database: Database) -> contract.Step | None:
        """Return the next step, None at the end; meanwhile keep the snapshot, since this thread alone uses the connection."""
        while True:
            try:
                return self._steps.get(timeout=_KEEP_SECONDS)
            except queue.Empty:
                database.keep()

    def _answer(self, reply: Reply) -> None:
        self._reply = reply
        self._answered.set()

    def _open(self, database: Database) -> contract.Opened:
        place = database.place
        if place is None:
            return contract.Opened(engine=self._engine)
        return contract.Opened(engine=self._engine, commit=place.commit, place=place.text)

    def _try_step(self, database: Database, what: contract.Step) -> Reply:
        try:
            return Reply(state="done", rows=self._rows, result=self._result(database, what))
        except ReplicationError as error:
            return Reply(state="failed", failure=contract.failure(error))
        except Exception as error:  # noqa: BLE001 - as above.
            doors.log_unexpected(_log, "a step of a verification failed", error)
            return Reply(state="failed", failure=_unexpected_failure())

    def _result(self, database: Database, what: contract.Step) -> Any:
        match what:
            case contract.Tables():
                return self._list_tables(database, what.start)
            case contract.Idle():
                return self._acknowledged_since(database, what.commit) or database.idle_since(what.commit)
            case contract.Open() | contract.Keep() | contract.Close():
                raise CorruptInput("this is no step of a verification that is under way")
            case _:
                return self._of_table(self._side(database, what.table), what)

    def _acknowledged_since(self, database: Database, commit: int) -> bool:
        """Whether the edge has read its log up to the snapshot, and had nothing acknowledged after a transaction meanwhile."""
        place, checkpoint = database.place, self._checkpoint() if self._checkpoint else None
        if place is None or checkpoint is None or checkpoint.promised is not None:
            return False
        return checkpoint.confirmed >= place.commit and checkpoint.position.commit <= commit

    def _of_table(
        self,
        side: SourceSide,
        what: contract.Measure | contract.Count | contract.Digests | contract.Hashes | contract.Rows,
    ) -> Any:
        match what:
            case contract.Measure():
                return contract.Measured(about=side.about(), bounds=side.bounds())
            case contract.Count():
                return side.count()
            case contract.Digests():
                return contract.encode_digests(side.digests(what.grid, what.cells))
            case contract.Hashes():
                return side.hashes(what.grid, what.cells, what.most)
            case contract.Rows():
                return side.rows(what.grid, what.cells, what.key_hashes)

    def _list_tables(self, database: Database, start: int) -> contract.Listed:
        tables = self._read_tables(database)
        columns, end = 0, start
        while end < len(tables) and (end == start or columns + len(tables[end].columns) <= MOST_COLUMNS):
            columns += len(tables[end].columns)
            end += 1
        sequences = sorted(database.sequences) if start == 0 else []
        return contract.Listed(tables=tables[start:end], total=len(tables), sequences=sequences)

    def _read_tables(self, database: Database) -> list[SourceTable]:
        if self._tables is None:
            self._tables = self._leaving(database.tables())
        return self._tables

    def _side(self, database: Database, compared: contract.ComparedTable) -> SourceSide:
        """Return a table as a side, by columns of its catalog that leave: no text that came is in a statement."""
        table = next((each for each in self._read_tables(database) if str(each) == compared.name), None)
        if table is None or not table.captured:
            raise CorruptInput(
                f"the source has no captured table {compared.name!r} in this snapshot, or it does not leave the region"
            )
        columns, key = contract.columns_of(compared, table, database.forms)
        return database.side(table, columns, key, on_progress=self._add_rows)

    def _add_rows(self, rows: int) -> None:
        self._rows += rows


def _unexpected_failure() -> Failure:
    return Failure(kind="NeedsOperator", message=f"unexpected error ({UNEXPECTED})", hint="See the edge's log.")
