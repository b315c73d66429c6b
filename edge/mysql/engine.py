"""MariaDB and MySQL as an engine of the agent (edge/engine.py): ties server, binlog stream and decoder together.

Next to the stream it is looked at how much of the log is after the checkpoint, and whether that is still there.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal

from edge.delivery.outbox import Outbox
from edge.engine import Adoption, DecodedLog, ServerWatch
from edge.mysql import setup
from edge.mysql.binlog_reader import BinlogReader
from edge.mysql.checkpoint import GtidProgress, MysqlCheckpoint, MysqlGtids, place, split_name
from edge.mysql.checks import check_gtids, check_identity, check_log, check_settings, log, retention_seconds
from edge.mysql.connection import Database, SnapshotConnection
from edge.mysql.coverage import Chosen, check_logged, described_columns, generated_columns, leaves_generated_out
from edge.mysql.replication import ReplicationStream, check_file, check_server_id, note_dump_thread, noted_dump_thread
from edge.mysql.setup import MysqlRetirement
from edge.mysql.snapshot_decoder import SnapshotDecoder, SnapshotOrdinals
from edge.mysql.snapshot_reader import SnapshotReader
from edge.mysql.snapshot_table import condition
from edge.mysql.table_cache import TableCache
from edge.observability.figures import Figures
from edge.progress.checkpoint import State
from edge.progress.notes import PassedTransactions
from edge.records.batcher import Batcher
from edge.records.column_policy import Policy, PolicyTable
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import EdgeFile, Mysql
from headrace.errors import NeedsOperator
from headrace.position import Position


class MysqlEngine:
    """A MariaDB or MySQL source; a place is a binlog file's number and an offset in it."""

    def __init__(self, config: EdgeFile, names: Mysql, engine: Literal["mariadb", "mysql"]) -> None:
        self._config, self._names, self._engine = config, names, engine
        self.address = str(names)
        self.state = State(config.resolve(config.state.folder), MysqlCheckpoint)
        #: What was read and is not in the checkpoint yet: shared with the session that runs.
        self._gtids = GtidProgress()
        # Of files that are whole, by their numbers: a session that follows need not read them again.
        self._undecided: dict[int, dict[str, int]] = {}
        self._left_out: dict[str, str] = {}

    def open(self, checkpoint: MysqlCheckpoint, former_pid: int) -> "MysqlSession":
        """Return a session whose server and binlog agree with the checkpoint."""
        source = self._config.source.name
        database = self._database()
        try:
            check_settings(database, mariadb=self._engine == "mariadb")
            check_logged(database, self._names, new=False)
            check_identity(database, checkpoint)
            check_log(database, checkpoint)
            check_gtids(database, checkpoint)
            check_file(self._names, source, checkpoint)
            folder = self.state.folder
            check_server_id(database, self._names.server_id, former_pid or noted_dump_thread(folder, database))
            stream = ReplicationStream(self._names, source)
            try:
                note_dump_thread(folder, database, stream.pid)
            except BaseException:
                stream.close()
                raise
        except BaseException:
            database.close()
            raise
        again = BinlogReader(self._names, source, database, checkpoint.base, self._undecided)
        return MysqlSession(
            self._config, self._names, self._engine, self._gtids, stream, database, again, self._left_out
        )

    def advanced(self, checkpoint: MysqlCheckpoint, position: Position, place: int) -> MysqlCheckpoint:
        """Return the checkpoint moved to an acknowledged position and place."""
        return self._gtids.advanced(checkpoint, position, place)

    def watch(self, checkpoint: Callable[[], MysqlCheckpoint], figures: Figures, outbox: Outbox) -> "Watch":
        """Start to look at settings and binlog."""
        return Watch(self._config, self._database, checkpoint, figures, outbox, self._left_out)

    def initialise(
        self, checkpoint: MysqlCheckpoint | None, adoption: Adoption | None, report: Callable[[str], None]
    ) -> MysqlCheckpoint:
        """Make or verify the checkpoint."""
        with self._database() as database:
            return setup.initialise(
                self._config.source.name, self._engine, database, self._names, self.state, checkpoint, adoption, report
            )

    def retirement(self, checkpoint: MysqlCheckpoint | None) -> MysqlRetirement:
        """Return what has to be looked at on the server before the source is given up."""
        return MysqlRetirement(self._config, self._names, checkpoint)

    def condition(self, table: str, keys: list[dict[str, Any]]) -> str:
        """Return a condition that is true of the rows with these keys."""
        with self._database() as database:
            return condition(database, table, keys, self._config.records)

    def server_status(self, checkpoint: MysqlCheckpoint | None) -> dict[str, str | int | None]:
        """Return the confirmed place and what the server has behind it."""
        with self._database() as database:
            binlog = log(database)
        return {
            "confirmed_gtids": checkpoint.gtids if checkpoint else None,
            "confirmed_file": checkpoint.file if checkpoint else None,
            "confirmed_offset": checkpoint.offset if checkpoint else None,
            "server_id": checkpoint.server_id if checkpoint else None,
            "binlog_first": binlog.files[0][0],
            "binlog_end": f"{binlog.end[0]}:{binlog.end[1]}",
            "retained_wal_bytes": binlog.retained(checkpoint.confirmed) if checkpoint else None,
        }

    def _database(self) -> Database:
        return Database(self._names, self._config.source.name)


class MysqlSession(DecodedLog[SnapshotDecoder]):
    """A binlog stream and its decoder, with an ordinary connection next to them for what the log does not have."""

    def __init__(
        self,
        config: EdgeFile,
        names: Mysql,
        engine: Literal["mariadb", "mysql"],
        gtids: GtidProgress,
        stream: ReplicationStream,
        database: Database,
        prepared_reader: BinlogReader,
        left_out: dict[str, str],
    ) -> None:
        self._left_out = left_out
        self._config, self._names, self._engine, self._gtids = config, names, engine, gtids
        self._stream, self._database, self._prepared_reader = stream, database, prepared_reader
        self._charsets: dict[int, str] = {}
        self.pid = stream.pid
        self.fileno = stream.fileno

    def log_end(self) -> int:
        """Return the place where the log ends now."""
        name, size = log(self._database).end
        return place(split_name(name)[1], size)

    def start(self, checkpoint: MysqlCheckpoint, batcher: Batcher, history: TableHistory | None = None) -> None:
        """Start the stream after the checkpoint's GTID set."""
        self._charsets = _charsets(self._database)
        if history is not None:
            query = "select concat(table_schema, '.', table_name) from information_schema.tables"
            history.forget_dropped({str(name): str(name) for (name,) in self._database.rows(query)})
        policy = Policy.of(self._config, self._left_out)
        self._tables = TableCache(
            connector=self._engine,
            source=self._config.source.name,
            chosen=Chosen(self._names.databases, self._names.tables, policy),
            policy=policy,
            zero_dates=self._names.zero_dates,
            records=self._config.records,
            charset_of=self._charset_of,
            kinds_of=self._kinds_of,
            type_of=self._type_of,
            filled_of=self._read_filled,
            names_of=self._table_names,
            warn=history.warn if history is not None else lambda _name, _words: None,
            lower_case=self._database.variable("lower_case_table_names") in {"1", "2"},
            signs_of=self._signs_of,
            generated_of=partial(generated_columns, self._database) if leaves_generated_out(self._database) else None,
        )
        sent = (checkpoint.position, *([checkpoint.promised] if checkpoint.promised else []))
        self._checkpoint = checkpoint
        self._decoder = SnapshotDecoder(
            prepared_reader=self._prepared_reader,
            ordinals=SnapshotOrdinals(self._config.resolve(self._config.state.folder), *sent),
            server_id=checkpoint.server_id,
            epoch=checkpoint.position.epoch,
            base=checkpoint.base,
            after=checkpoint.confirmed,
            batcher=batcher,
            tables=self._tables,
            mariadb=self._engine == "mariadb",
            largest=self._config.records.largest_bytes,
            records=self._config.records,
            history=history,
            passed=PassedTransactions(self._config.resolve(self._config.state.folder)).by_name,
        )
        # What a session before read is read again.
        self._gtids.restart()
        self._decoder.marks, self._decoder.created = self._gtids.marks, self._gtids.created
        gtids = checkpoint.gtid_set
        if isinstance(gtids, MysqlGtids):
            self._stream.start_mysql(str(gtids), gtids.encoded())
        else:
            self._stream.start_mariadb(str(gtids))

    def reader(self) -> SnapshotReader:
        """Return a reader of chunks with a connection of its own."""
        connect = partial(SnapshotConnection, self._names, self._config.source.name)
        return SnapshotReader(
            connect, self._tables, self._checkpoint, self._decoder.watermarks, self._decoder.xa.decided
        )

    @property
    def passed(self) -> int:
        """The place up to which the log is read."""
        return self._decoder.passed

    @property
    def replies_requested(self) -> int:
        """Return 0: these servers request none."""
        return 0

    @property
    def frames(self) -> int:
        """How many packets came."""
        return self._stream.frames

    def read(self, now_ms: int) -> int:
        """Decode the events that have arrived."""
        decoder = self._decoder
        if decoder.xa.is_replaying:
            fed = decoder.xa.replay(now_ms)
            decoder.arrive(now_ms)
            return fed
        if not decoder.watermarks:
            return self._stream.read(decoder.feed, now_ms)
        fed = self._stream.read(decoder.feed_and_arrive, now_ms)
        decoder.arrive(now_ms)
        return fed

    def confirm(self, place: int, now_ms: int, *, wants_reply: bool = False) -> None:
        """Report nothing: the server keeps its binlog by age, whoever has read it."""

    def flush(self, seconds: float) -> None:
        """Wait for nothing."""

    def close(self) -> None:
        """Close both connections."""
        self._prepared_reader.close()
        self._stream.close()
        self._database.close()

    def _charset_of(self, collation: int) -> str:
        if collation not in self._charsets:
            raise NeedsOperator(
                f"the log names collation {collation}, which the server does not know",
                hint="It may have been removed by an upgrade: convert its columns to utf8mb4, and start a new epoch.",
            )
        return self._charsets[collation]

    def _kinds_of(self, database: str, table: str) -> dict[str, str]:
        # A period's columns differ from others by how they are generated.
        kind = (
            "case when generation_expression in ('ROW START', 'ROW END') then generation_expression else data_type end"
        )
        query = (
            f"select column_name, {kind} from information_schema.columns where table_schema = %s and table_name = %s"  # noqa: S608
        )
        return {str(name): str(kind).lower() for name, kind in self._database.rows(query, database, table)}

    def _read_filled(self, database: str, table: str) -> dict[str, bool]:
        # MariaDB writes the default NULL as a word; a column that may not be null gets its type's own default.
        query = (
            "select column_name, coalesce(column_default, 'NULL') <> 'NULL' or is_nullable = 'NO' or extra <> '' "
            "from information_schema.columns where table_schema = %s and table_name = %s"
        )
        return {str(name): bool(filled) for name, filled in self._database.rows(query, database, table)}

    def _signs_of(self, database: str, table: str) -> dict[str, bool]:
        query = (
            "select column_name, column_type like '%% unsigned%%' or column_type like '%% zerofill%%' "
            "from information_schema.columns where table_schema = %s and table_name = %s"
        )
        return {str(name): bool(is_unsigned) for name, is_unsigned in self._database.rows(query, database, table)}

    def _table_names(self) -> list[tuple[str, str]]:
        query = (
            "select table_schema, table_name from information_schema.tables "
            "where table_type in ('BASE TABLE', 'SYSTEM VERSIONED')"
        )
        return [(str(database), str(table)) for database, table in self._database.rows(query)]

    def _type_of(self, database: str, table: str) -> str:
        query = "select table_type from information_schema.tables where table_schema = %s and table_name = %s"
        return str(self._database.value(query, database, table) or "")


def _charsets(database: Database) -> dict[int, str]:
    """Return character sets by the numbers of their collations."""
    query = "select id, character_set_name from information_schema.collations where id is not null"
    names = {int(number): str(name) for number, name in database.rows(query) if name}
    if database.is_mariadb:
        # Collations of several character sets have a number for each.
        applicable = "select id, character_set_name from information_schema.collation_character_set_applicability"
        names |= {int(number): str(name) for number, name in database.rows(applicable) if number is not None and name}
    return names


class Watch(ServerWatch[Database, MysqlCheckpoint]):
    """Looks at settings and binlog."""

    def look(self, connection: Database) -> None:
        """Look once."""
        check_settings(connection, mariadb=self._config.source.mariadb is not None)
        checkpoint = self._checkpoint()
        log = check_log(connection, checkpoint)
        name, size = log.end
        retained = log.retained(checkpoint.confirmed)
        self._figures.saw_log(place(split_name(name)[1], size), retained=retained, safe=None)
        self._figures.log_retention_seconds = retention_seconds(connection)
        self.warn_of(retained)
        self.look_at_policy(connection)

    def policy_tables(self, connection: Database) -> Iterable[PolicyTable]:
        """Return the tables of the chosen databases with their columns."""
        names = self._config.source.mariadb or self._config.source.mysql
        assert names is not None
        return described_columns(connection, names)
