"""PostgreSQL as an engine of the agent (edge/engine.py): ties slot, publication, log stream and decoder together."""

from collections.abc import Callable
from functools import partial
from typing import Any

from edge.delivery.outbox import Outbox
from edge.engine import Adoption, DecodedLog
from edge.observability.figures import Figures
from edge.postgres import setup
from edge.postgres.catalog import (
    Lineages,
    check_publication,
    columns_of,
    enum_labels,
    primary_key,
    published,
    table_names,
)
from edge.postgres.checkpoint import Commits, PostgresCheckpoint, format_lsn
from edge.postgres.connection import Database
from edge.postgres.errors import SlotTaken
from edge.postgres.failover import KnownCatalog, Watch, follow, guard
from edge.postgres.replication import ReplicationStream
from edge.postgres.setup import PostgresRetirement
from edge.postgres.slot import (
    Walsender,
    check_commits,
    check_log_end,
    check_server,
    check_slot,
    check_system,
    find_slot,
    log_end,
    retained_bytes,
    sender_timeout,
)
from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.postgres.snapshot_reader import SnapshotReader, condition
from edge.postgres.visibility import Unseen
from edge.progress.checkpoint import State
from edge.progress.notes import PassedTransactions
from edge.records.batcher import Batcher
from edge.records.column_policy import Policy
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import EdgeFile, Postgresql
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position


class PostgresEngine:
    """A PostgreSQL source; a place is an LSN."""

    def __init__(self, config: EdgeFile, names: Postgresql) -> None:
        self._config = config
        self._names = names
        self.address = str(names)
        self.state = State(config.resolve(config.state.folder), PostgresCheckpoint)
        self._known = KnownCatalog()
        # Over all sessions: what one decoded may become visible when another one copies.
        self._unseen = Unseen()
        #: What was read and is not in the checkpoint yet: shared with the session that runs.
        self._commits = Commits()
        self._outbox: Outbox | None = None
        self._left_out: dict[str, str] = {}
        self._lineages = Lineages()
        self._walsender = Walsender(self.state.folder)

    def open(self, checkpoint: PostgresCheckpoint, former_pid: int) -> "PostgresSession":  # noqa: ARG002 - of the port.
        """Return a session whose stream and slot agree with the checkpoint; the former one is known by the state folder."""
        source = self._config.source.name
        sent = self._outbox.sent.commit if self._outbox is not None else 0
        stream, database = open_stream(self._names, source, checkpoint, self._walsender, sent)
        return PostgresSession(
            self._config,
            self._names,
            stream,
            database,
            self._known,
            self._unseen,
            self._left_out,
            self._lineages,
            commits=self._commits,
        )

    def advanced(self, checkpoint: PostgresCheckpoint, position: Position, place: int) -> PostgresCheckpoint:
        """Return the checkpoint moved to an acknowledged position and LSN."""
        return self._commits.advanced(checkpoint, position, place, self._unseen.look())

    def watch(self, checkpoint: Callable[[], PostgresCheckpoint], figures: Figures, outbox: Outbox) -> Watch:
        """Start to look at slot and publication."""
        self._outbox = outbox
        return Watch(self._config, self._database, checkpoint, figures, outbox, self._left_out, self._known)

    def initialise(
        self, checkpoint: PostgresCheckpoint | None, adoption: Adoption | None, report: Callable[[str], None]
    ) -> PostgresCheckpoint:
        """Make, finish, or verify publication, slot and checkpoint."""
        return setup.initialise(self._config.source.name, self._names, self.state, checkpoint, adoption, report)

    def retirement(self, checkpoint: PostgresCheckpoint | None) -> PostgresRetirement:
        """Return what has to be removed from the server."""
        return PostgresRetirement(self._names, self._config.source.name, checkpoint)

    def condition(self, table: str, keys: list[dict[str, Any]]) -> str:
        """Return a condition that is true of the rows with these keys."""
        with self._database() as database:
            return condition(database, self._names.publication, table, keys, self._config.records)

    def server_status(self, checkpoint: PostgresCheckpoint | None) -> dict[str, str | int | None]:
        """Return the confirmed LSN and the slot as the server shows it."""
        with self._database() as database:
            slot = find_slot(database, self._names.slot)
            retained = retained_bytes(database, slot) if slot else None
        return {
            "confirmed_lsn": checkpoint.confirmed_lsn if checkpoint else None,
            "slot": slot.name if slot else None,
            "slot_confirmed_lsn": format_lsn(slot.confirmed) if slot else None,
            "slot_wal_status": slot.wal_status if slot else None,
            "slot_active_pid": slot.active_pid if slot else None,
            "retained_wal_bytes": retained,
        }

    def _database(self) -> Database:
        return Database(self._names, self._config.source.name)


class PostgresSession(DecodedLog[SnapshotDecoder]):
    """A slot's stream and its decoder, with an ordinary connection next to them for what the log does not have."""

    def __init__(
        self,
        config: EdgeFile,
        names: Postgresql,
        stream: ReplicationStream,
        database: Database,
        catalog: KnownCatalog,
        unseen: Unseen,
        left_out: dict[str, str],
        lineages: Lineages,
        *,
        commits: Commits,
    ) -> None:
        self._commits = commits
        self._source = config.source.name
        self._names = names
        self._config = config
        self._policy = Policy.of(config, left_out)
        self._stream = stream
        self._database = database
        self._known = catalog
        self._unseen = unseen
        self._lineages = lineages
        self.pid = stream.pid
        self.fileno, self.confirm, self.flush = stream.fileno, stream.confirm, stream.flush

    def log_end(self) -> int:
        """Return the LSN where the log ends now."""
        return log_end(self._database)

    def start(self, checkpoint: PostgresCheckpoint, batcher: Batcher, history: TableHistory | None = None) -> None:
        """Start the slot's stream at the confirmed LSN."""
        names = self._names
        self._unseen.begin(self._database, checkpoint.timeline, checkpoint.unseen or ())
        if history is not None:
            labels = enum_labels(self._database)
            history.labels(labels)
            history.forget_dropped(table_names(self._database))
            what = published(self._database, names.publication, history.published)
            history.publication(what)
            # What is altered from now on is found by a look, the first one included.
            self._known.labels, self._known.published = labels, what
        self._decoder = SnapshotDecoder(
            unseen=self._unseen,
            source=self._source,
            database=names.database,
            epoch=checkpoint.position.epoch,
            batcher=batcher,
            key_of=partial(primary_key, self._database),
            records=self._config.records,
            policy=self._policy,
            history=history,
            catalog_of=partial(columns_of, self._database),
            above_of=partial(self._lineages.above, self._database),
            passed=PassedTransactions(self._config.resolve(self._config.state.folder)).by_name,
        )
        # What a session before read is read again.
        self._commits.restart()
        self._decoder.commits = self._commits.read
        try:
            self._stream.start(names.slot, names.publication, checkpoint.confirmed)
        except SlotTaken as error:
            raise error.held_for(sender_timeout(self._database)) from error

    def reader(self) -> SnapshotReader:
        """Return a reader of chunks with a connection of its own."""
        return SnapshotReader(self._names, self._source, self._policy)

    @property
    def passed(self) -> int:
        """The LSN up to which the log is read."""
        reached, decoder = self._stream.reached, self._decoder
        return reached if decoder.in_transaction else max(reached, decoder.end_lsn)

    @property
    def replies_requested(self) -> int:
        """How often the server has requested a reply."""
        return self._stream.replies_requested

    @property
    def frames(self) -> int:
        """How many frames came."""
        return self._stream.frames

    def read(self, now_ms: int) -> int:
        """Decode the messages that have arrived."""
        if self._unseen.is_look_due:
            self._unseen.look()
        if self._unseen.lost:
            raise NotConnected(f"the connection to {self._names} that shows what readers see was lost")
        decoder = self._decoder
        if decoder.wants_places:
            return self._stream.read(decoder.feed_placed, now_ms, with_place=True)
        return self._stream.read(decoder.feed, now_ms)

    def close(self) -> None:
        """Close both connections."""
        self._stream.close()
        self._database.close()


def open_stream(
    config: Postgresql, source: str, checkpoint: PostgresCheckpoint, walsender: Walsender, sent: int = 0
) -> tuple[ReplicationStream, Database]:
    """Return a checked replication connection, and an ordinary one next to it.

    `walsender` has the server's process of this edge's stream before: the server may not have noticed yet that it is gone, so it
    is ended. `sent` is the greatest commit LSN that this process has sent. Raises NeedsOperator,
    NotConnected, or CheckpointChanged.
    """
    if (config.slot, config.publication, config.database) != (
        checkpoint.slot,
        checkpoint.publication,
        checkpoint.database,
    ):
        raise NeedsOperator(
            f"the checkpoint is of slot {checkpoint.slot!r}, publication {checkpoint.publication!r} and database "
            f"{checkpoint.database!r}; the configuration names others",
            hint="Put the names back into the configuration, or give this one a state folder of its own.",
        )
    database = Database(config, source)
    try:
        check_server(database)
        stream = ReplicationStream(config, source)
        try:
            system = stream.identify()
            check_system(system, checkpoint)
            if (changed := follow(stream, database, system, checkpoint)) is not None:
                raise changed
            check_log_end(system.lsn, checkpoint, sent)
            check_publication(database, checkpoint)
            try:
                slot = check_slot(database, checkpoint)
            except SlotTaken as error:
                walsender.end(database, system.identifier, error.pid)
                raise error.held_for(sender_timeout(database)) from error
            if (changed := guard(database, slot, checkpoint)) is not None:
                raise changed
            walsender.end(database, system.identifier, slot.active_pid)
            try:
                check_commits(config, source, slot, checkpoint)
            except SlotTaken as error:
                raise error.held_for(sender_timeout(database)) from error
            walsender.note(database, system.identifier, stream.pid)
        except BaseException:
            stream.close()
            raise
    except BaseException:
        database.close()
        raise
    return stream, database
