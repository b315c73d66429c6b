"""Where a source's half of a verification is computed: at its own database, whose engine is chosen here alone, or in its region.

`connect` gives the database of a source that is reached from here, by its configuration. `RemoteDatabase` is that of one that is
not, over requests to its edge.

Guarantees one snapshot for all steps of a remote one: the edge holds it, and an edge that lost it reports that. Each request has
a deadline of its own, so an edge that dies is noticed within that, and all together have one, so an edge that is never done keeps
nobody; while headquarters computes, the session is kept by a request now and then.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any, Protocol, TypeVar

import msgspec

from headrace import requests
from headrace.configuration.databases import PostgresqlConnection
from headrace.configuration.edge import Mysql
from headrace.configuration.lake import VerifiedMysql
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.formats import UNREADABLE, explain
from headrace.requests import Answered, new_request
from headrace.verify import canonical, contract
from headrace.verify.canonical import Column
from headrace.verify.comparison import Database, Digest, Engine, Forms, Grid, Place, Reading, Row, RowHash, SourceTable
from headrace.verify.contract import IDLE_SECONDS, MOST_KEYS, Listed, Measured, Opened, Reply, Step
from headrace.verify.mysql import canonical as mysql_canonical

_log = logging.getLogger(__name__)
T = TypeVar("T")

#: A session is kept by a request after so long, in seconds; its end is asked for within this time.
_KEEP_SECONDS, _CLOSE_SECONDS = IDLE_SECONDS / 4, 10.0
#: How long a session may last, in seconds: the longest statement that an edge's file may allow. And how often an edge is asked
#: whether it still works, at most.
_LONGEST_SECONDS, _WORKING_SECONDS = 86_400.0, 1.0
#: Names of tables and columns that an edge may list, and the bytes of all that it lists.
_MOST_NAMES, _MOST_BYTES = 300_000, 32 << 20
#: An edge that is at another verification is asked again after so long, in seconds.
_AGAIN_SECONDS = 3.0
#: Text of hashes in one answer, at most, about: an answer has a limit.
_CHARACTERS = 2_000_000
_OLD = "An edge of release 0.1 receives no requests: upgrade it. "
_DIRECT = (
    'Or set via = "direct" for the source in the lake\'s file, with a connection to its database (docs/verify.md).'
)


class Address(Protocol):
    """A source's database, of which one kind is given: `[source]` of an edge's file, `[sources."x/y"]` of the lake's."""

    @property
    def postgresql(self) -> PostgresqlConnection | None:
        """Return how it is reached where it is PostgreSQL."""

    @property
    def mariadb(self) -> Mysql | VerifiedMysql | None:
        """Return how it is reached where it is MariaDB."""

    @property
    def mysql(self) -> Mysql | VerifiedMysql | None:
        """Return how it is reached where it is MySQL."""


def engine_of(address: Address) -> Engine:
    """Return the engine; MariaDB's and MySQL's is one."""
    return "mysql" if address.postgresql is None else "postgresql"


def forms(engine: Engine) -> Forms:
    """Return how an engine's values are written."""
    return canonical if engine == "postgresql" else mysql_canonical


def connect(
    source: str, address: Address, *, placed: bool = False, reading: Reading | None = None
) -> AbstractContextManager[Database]:
    """Give the database in a snapshot that lasts as long as the context; `placed`, at a place of the log that is known.

    Raises NotConnected when the server cannot be reached, NeedsOperator when it refuses the user, or does not report its place.
    """
    reading = reading or Reading()
    # Each client is imported where a source needs it.
    if address.postgresql is not None:
        from headrace.verify.postgres.database import SourceDatabase

        return SourceDatabase.connect(source, address.postgresql, placed=placed, reading=reading)
    from headrace.verify.mysql.database import MysqlDatabase

    mysql = address.mariadb or address.mysql
    assert mysql is not None
    return MysqlDatabase.connect(source, mysql, placed=placed, reading=reading)


class RemoteDatabase:
    """A source's database at its edge, in one snapshot. Safe for threads: requests are one after the other."""

    def __init__(self, source: str, topics: requests.Topics, seconds: float) -> None:
        self._source, self._topics = source, topics
        #: Within which each request is to be answered.
        self.seconds = seconds
        self._session = secrets.token_hex(16)
        self._lock = threading.Lock()
        self._step = -1
        self._asked_at = time.monotonic()
        self._ends_at = self._asked_at + _LONGEST_SECONDS
        #: Whether edge or bridge did not answer: then they are not asked to close.
        self._is_lost = False
        #: Every transaction below it is seen, no other; None for a snapshot without a place.
        self.place: Place | None = None
        self.sequences: frozenset[str] = frozenset()
        self.forms: Forms = forms("postgresql")

    @classmethod
    @contextmanager
    def connect(
        cls,
        source: str,
        topics: requests.Topics,
        *,
        seconds: float,
        placed: bool = False,
        busy_seconds: float = 0.0,
        on_busy: Callable[[str], None] = lambda _why: None,
    ) -> Iterator["RemoteDatabase"]:
        """Give the database in a snapshot that lasts as long as the context; `placed`, at a place of the log that is known.

        An answer to a request may take `seconds`. An edge that is at another verification is waited for, `busy_seconds` at most,
        and `on_busy` receives the reason meanwhile. Raises NotConnected when edge or bridge do not answer, NeedsOperator when the
        edge refuses or its database does, Retryable when it is still at another verification.
        """
        database = cls(source, topics, seconds)
        over = threading.Event()
        keeper = threading.Thread(target=database._keep, args=(over,), name="verification keeper", daemon=True)
        try:
            opened = database._open(contract.Open(placed=placed), busy_seconds, on_busy)
            database.forms = forms(opened.engine)
            if opened.commit is not None:
                database.place = Place(opened.commit, opened.place)
            keeper.start()
            yield database
        finally:
            over.set()
            database._close()

    def tables(self) -> list[SourceTable]:
        """Return the tables that can be captured, by name; raise CorruptInput for more than a database has."""
        tables: list[SourceTable] = []
        names = size = 0
        while True:
            page = self.do(contract.Tables(start=len(tables)), Listed)
            tables += page.tables
            names += sum(
                1 + len(table.columns) + len(table.treated) + len(table.key) + len(table.partition_of)
                for table in page.tables
            )
            size += len(msgspec.json.encode(page.tables))
            if names > _MOST_NAMES or size > _MOST_BYTES:
                raise CorruptInput(
                    f"{self._source}: the edge names more than {_MOST_NAMES} tables and columns",
                    hint=f"Is it the edge that you think? {_DIRECT}",
                )
            if page.sequences:
                self.sequences = frozenset(page.sequences)
            if len(tables) >= page.total or not page.tables:
                return tables

    def side(
        self,
        table: SourceTable,
        columns: list[Column],
        key: list[Column],
        *,
        on_progress: Callable[[int], None] | None = None,
    ) -> "RemoteSide":
        """Return a table as a side of a comparison; `on_progress` receives how many more rows were summed up."""
        return RemoteSide(self, contract.describe_table(table, columns, key), on_progress)

    def idle_since(self, commit: int) -> bool:
        """Whether the log is known to have no change between a transaction and the snapshot's place."""
        return self.place is not None and self.do(contract.Idle(commit=commit), bool)

    def keep(self) -> None:
        """Do nothing: the edge keeps the snapshot."""

    def interrupt(self) -> None:
        """Do nothing: closing the session ends what runs in it."""

    def do(self, step: Step, kind: type[T], on_rows: Callable[[int], None] = lambda _rows: None) -> T:
        """Return what a step is answered with; `on_rows` receives how many rows it has summed up so far.

        Raises what the edge's database does, and NotConnected when the snapshot is lost or the session has lasted too long.
        """
        self._check_time()
        with self._lock:
            self._step += 1
            reply = self._ask(self._step, step)
            while reply.state == "working":
                on_rows(reply.rows)
                # An honest edge answers so when the request's time has nearly passed.
                time.sleep(min(_WORKING_SECONDS, self.seconds / 10))
                self._check_time()
                reply = self._ask(self._step, None)
        if reply.state == "failed":
            raise contract.error_of(reply.failure or contract.Failure(kind="NeedsOperator", message="an unknown error"))
        on_rows(reply.rows)
        return self._convert(reply.result, kind)

    def _open(self, step: contract.Open, busy_seconds: float, on_busy: Callable[[str], None]) -> Opened:
        """Have a snapshot taken, once the edge is at no other verification."""
        until = time.monotonic() + busy_seconds
        while True:
            try:
                return self.do(step, Opened)
            except Retryable as busy:
                left = until - time.monotonic()
                if left <= 0:
                    raise
                on_busy(f"{busy.message}; waiting for it, {left:.0f} s at most")
                # The edge knows of no step of this session.
                self._step = -1
                time.sleep(min(left, _AGAIN_SECONDS))

    def _check_time(self) -> None:
        """Raise NotConnected where the session has lasted for too long."""
        if time.monotonic() > self._ends_at:
            raise NotConnected(
                f"{self._source}: the edge is still at the verification after {_LONGEST_SECONDS / 3600:.0f} hours",
                hint=f"Verify with --sample or one --table at a time, and see the edge's log. {_DIRECT}",
            )

    def _ask(self, step: int, what: Step | None, seconds: float | None = None) -> Reply:
        arguments = contract.encode_arguments(self._session, step, what)
        request = new_request(self._source, "verify", requests.caller(), seconds or self.seconds, arguments)
        try:
            content = requests.ask(self._topics, request)
        except Answered:
            raise
        except (NotConnected, NeedsOperator) as error:
            self._is_lost = True
            old = _OLD if isinstance(error, NotConnected) else ""
            raise type(error)(error.message, hint=f"{error.hint} {old}{_DIRECT}".strip()) from error
        finally:
            self._asked_at = time.monotonic()
        return self._convert(content.data, Reply)

    def _convert(self, data: Any, kind: type[T]) -> T:
        try:
            return msgspec.convert(data, kind)
        except UNREADABLE as error:
            raise CorruptInput(
                f"{self._source}: the edge's answer to 'verify' is not understood: {explain(error)}",
                hint="Are edge and headquarters of releases that go together (docs/upgrading.md)?",
            ) from error

    def _keep(self, over: threading.Event) -> None:
        """Keep the session while nothing is asked; what comes of it shows at the next step."""
        while not over.wait(1.0):
            if time.monotonic() - self._asked_at > _KEEP_SECONDS and self._lock.acquire(blocking=False):
                try:
                    self._ask(self._step, contract.Keep(), min(self.seconds, _KEEP_SECONDS))
                except ReplicationError as error:
                    _log.debug("the verification in the region was not kept: %s", error.message)
                finally:
                    self._lock.release()

    def _close(self) -> None:
        if self._is_lost:
            return
        with suppress(ReplicationError), self._lock:
            self._ask(self._step, contract.Close(), _CLOSE_SECONDS)


class RemoteSide:
    """A table in the region as a side of a comparison."""

    def __init__(
        self, database: RemoteDatabase, table: contract.ComparedTable, on_progress: Callable[[int], None] | None
    ) -> None:
        self._database, self._table = database, table
        self._on_progress = on_progress
        self._measured: Measured | None = None

    def bounds(self) -> tuple[int, int] | None:
        """Return the least and greatest number of the leading key column; None when it is no integer, or without rows."""
        return self._measure().bounds

    def about(self) -> int:
        """Return about how many rows there are."""
        return self._measure().about

    def count(self) -> int:
        """Return how many rows there are."""
        return self._database.do(contract.Count(table=self._table), int)

    def digests(self, grid: Grid, cells: Collection[int] | None = None) -> dict[int, Digest]:
        """Return the digest of each cell of a grid, or of those named; an empty cell is not there."""
        summed = 0

        def on_rows(rows: int) -> None:
            nonlocal summed
            if self._on_progress and rows > summed:
                self._on_progress(rows - summed)
            summed = max(summed, rows)

        numbers = None if cells is None else sorted(cells)
        step = contract.Digests(table=self._table, grid=grid, cells=numbers)
        return contract.decode_digests(self._database.do(step, list[tuple[int, int, str, str]], on_rows))

    def hashes(self, grid: Grid, cells: Collection[int], most: int) -> list[RowHash]:
        """Return the rows in some cells of a grid, by key hash, `most` at most."""
        step = contract.Hashes(table=self._table, grid=grid, cells=sorted(cells), most=most)
        return self._database.do(step, list[RowHash])

    def rows(self, grid: Grid, cells: Collection[int], key_hashes: Collection[str]) -> list[Row]:
        """Return the rows in some cells of a grid whose keys have these hashes."""
        hashes = sorted(key_hashes)
        at_once = max(1, min(MOST_KEYS, _CHARACTERS // (40 * (len(self._table.columns) + 4))))
        rows: list[Row] = []
        for start in range(0, len(hashes), at_once):
            page = hashes[start : start + at_once]
            step = contract.Rows(table=self._table, grid=grid, cells=sorted(cells), key_hashes=page)
            rows += self._database.do(step, list[Row])
        return rows

    def _measure(self) -> Measured:
        if self._measured is None:
            self._measured = self._database.do(contract.Measure(table=self._table), Measured)
        return self._measured
