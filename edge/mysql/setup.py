"""Making a MariaDB or MySQL source, and retiring it: nothing is made in the server, but a checkpoint here.

Guarantees that a new epoch begins at the end of the binlog as it is now, that nothing behind its GTID set is ahead of its
place, and that a checkpoint is taken to another server only on request (`adopt`), after the last transaction that is
acknowledged.

An edge makes nothing in these servers, so there is nothing to remove. The binlog is listed by the server, event by event: no
row is decoded, and row events count by the tables that they name.
"""

import re
import time
from collections.abc import Callable
from typing import Literal, Self

import msgspec

from edge.engine import Adoption
from edge.mysql.checkpoint import COUNTED, Gtids, MysqlCheckpoint, file_name, listed_gtid, split_name
from edge.mysql.checks import (
    FIRST,
    check_gtids,
    check_identity,
    check_log,
    check_settings,
    executed,
    gtids_at,
    identity,
    log,
    newest_file,
)
from edge.mysql.connection import Database
from edge.mysql.coverage import Chosen, check_logged, unmatched
from edge.mysql.ddl import Kind, read_statement
from edge.mysql.errors import CAPTURE_AGAIN
from edge.mysql.replication import check_file, read_file_created
from edge.progress.checkpoint import State
from edge.records.column_policy import Policy
from headrace.configuration.edge import EdgeFile, Mysql
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position, new_epoch


def initialise(
    source: str,
    engine: Literal["mariadb", "mysql"],
    database: Database,
    names: Mysql,
    state: State[MysqlCheckpoint],
    checkpoint: MysqlCheckpoint | None,
    adoption: Adoption | None,
    report: Callable[[str], None],
) -> MysqlCheckpoint:
    """Make or only verify the source's checkpoint, and return it; `report` takes what was made."""
    check_settings(database, mariadb=engine == "mariadb")
    check_logged(database, names, new=checkpoint is None)
    for line in unmatched(database, names):
        report(f"Nothing to capture yet: {line}")
    if adoption is not None:
        new_checkpoint = _adopt(source, engine, database, state, checkpoint, adoption)
    elif checkpoint is not None:
        check_identity(database, checkpoint)
        check_log(database, checkpoint)
        check_gtids(database, checkpoint)
        check_file(names, source, checkpoint)
        report(f"Already made: checkpoint {state.path}, after GTID {checkpoint.gtids or 'none'}")
        return checkpoint
    else:
        new_checkpoint = _at_end(source, engine, database, Position.start(new_epoch()))
    new_checkpoint = msgspec.structs.replace(
        new_checkpoint, file_created=read_file_created(names, source, new_checkpoint.file)
    )
    state.write(new_checkpoint)
    report(f"Wrote checkpoint {state.path}: epoch {new_checkpoint.position.epoch}")
    report(f"Changes that commit after {new_checkpoint.place} are captured")
    return new_checkpoint


def _at_end(
    source: str, engine: Literal["mariadb", "mysql"], database: Database, position: Position
) -> MysqlCheckpoint:
    """Return a checkpoint where the binlog ends."""
    if engine == "mysql":
        # Transactions that are committing are in the log already and in no set yet. So the place is ahead of all of the file, and
        # the set is read after it: what the log has before that file is in the set, and what the set has of it is not read again.
        file, offset = newest_file(database), FIRST
        gtids = executed(database)
    else:
        file, offset = log(database).end
        gtids = gtids_at(database, file, offset)
    return _checkpoint(source, engine, database, position, file, offset, gtids)


def _checkpoint(
    source: str,
    engine: Literal["mariadb", "mysql"],
    database: Database,
    position: Position,
    file: str,
    offset: int,
    gtids: str,
) -> MysqlCheckpoint:
    number, name = identity(database)
    return MysqlCheckpoint(
        source=source,
        stage="made",
        acknowledged=str(position),
        engine=engine,
        gtids=gtids,
        file=file,
        offset=offset,
        server_id=number,
        server=name,
    )


def _adopt(
    source: str,
    engine: Literal["mariadb", "mysql"],
    database: Database,
    state: State[MysqlCheckpoint],
    checkpoint: MysqlCheckpoint | None,
    adoption: Adoption,
) -> MysqlCheckpoint:
    position = adoption.position
    if checkpoint is not None:
        if position is not None:
            raise adoption.refused(state)
        return _carry_over(source, engine, database, checkpoint)
    if position is None:
        raise NeedsOperator(
            "there is no checkpoint whose GTID a new epoch could go on after",
            hint="Run 'headrace edge init' without --adopt for a new epoch from now on, and copy the tables again.",
        )
    if engine == "mysql":
        raise NeedsOperator(
            "MySQL does not show the GTID set of a place in its binlog, so a lost checkpoint cannot be made again",
            hint="Run 'headrace edge init' without --adopt for a new epoch from now on, and copy the tables again.",
        )
    binlog = log(database)
    number, offset = position.commit >> 32, position.commit & 0xFFFFFFFF
    if number < binlog.first:
        raise NeedsOperator(
            f"the binlog begins with {binlog.files[0][0]}: {file_name(binlog.base, number)}, where the position is, was purged",
            hint=CAPTURE_AGAIN,
        )
    # The position is where its transaction began, or lies between two; the log is read again from a place ahead of that.
    file, before = _boundary_before(database, file_name(binlog.base, number), offset)
    return _checkpoint(source, engine, database, position, file, before, gtids_at(database, file, before))


def _boundary_before(database: Database, file: str, offset: int) -> tuple[str, int]:
    """Return where the GTID event begins that ends at an offset; the offset itself where a transaction ends."""
    start, before = FIRST, 0
    while offset > FIRST and before < start < offset:
        events = database.rows(f"show binlog events in '{file}' from {start} limit 2000")
        for _, begins, kind, _, ends, _ in events:
            # Within a transaction the log does not have where events end.
            if int(ends) == offset:
                return file, int(begins) if kind == "Gtid" else offset
        start, before = int(events[-1][1]) if events else 0, start
    if offset == FIRST:
        return file, offset
    raise NeedsOperator(
        f"no transaction begins at {file}:{offset}: the position is not of this server",
        hint="Check the server that [source.mariadb] names, and the position.",
    )


def _carry_over(
    source: str, engine: Literal["mariadb", "mysql"], database: Database, checkpoint: MysqlCheckpoint
) -> MysqlCheckpoint:
    """Return a checkpoint of a new epoch after the GTIDs of the former one, on the server as it is now.

    What is acknowledged of a transaction beyond those is sent again in the new epoch.
    """
    if checkpoint.spooled:
        raise NeedsOperator(
            f"the spool holds changes up to {checkpoint.spooled} that are not acknowledged, and the checkpoint's GTID is behind "
            "them: a new epoch would leave them out",
            hint="If the former server can be reached, run the edge there until the far side has everything. Otherwise move the "
            "state folder elsewhere, run 'headrace edge init' for a new epoch from now on, and copy the tables again.",
        )
    # Nothing of the new server's log is read yet: its first place is ahead of all of it.
    base, number = split_name(log(database).files[0][0])
    position = Position.start(new_epoch(checkpoint.position.epoch))
    carried = _checkpoint(source, engine, database, position, file_name(base, number), FIRST, checkpoint.gtids)
    check_gtids(database, carried)
    return carried


_EVENTS_AT_ONCE = 2000
#: A binlog that takes longer to list, in seconds, is not listed to its end.
_TIMEOUT_SECONDS = 60.0
_TABLE_MAP = re.compile(r"table_id: \d+ \((.+)\)")
_USE = re.compile(r"use `((?:[^`]|``)*)`; ?", re.IGNORECASE)


class MysqlRetirement:
    """Implements `edge.engine.Retirement`."""

    def __init__(self, config: EdgeFile, names: Mysql, checkpoint: MysqlCheckpoint | None) -> None:
        self._chosen = Chosen(names.databases, names.tables, Policy.of(config))
        self.steps = [f"the server keeps nothing for the edge; its user {names.user} may be dropped"]
        self._database = Database(names, config.source.name)
        try:
            if checkpoint is not None:
                check_identity(self._database, checkpoint)
            self.unsent = self._unsent(checkpoint)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        """Return itself; the connection is open until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._database.close()

    def carry_out(self, report: Callable[[str], None]) -> None:
        """Do nothing: the server has nothing of the edge's."""

    def _unsent(self, checkpoint: MysqlCheckpoint | None) -> str:
        if checkpoint is None:
            return "there is no checkpoint, so what the binlog holds is not known to have been sent"
        try:
            binlog = check_log(self._database, checkpoint)
            check_gtids(self._database, checkpoint)
            until = time.monotonic() + _TIMEOUT_SECONDS
            number = split_name(checkpoint.file)[1]
            for file, _ in binlog.files:
                if split_name(file)[1] < number:
                    continue
                start = checkpoint.offset if file == checkpoint.file and checkpoint.offset < COUNTED else FIRST
                if why := self._in_file(file, start, until, checkpoint.gtid_set):
                    return why
        except (NeedsOperator, NotConnected) as error:
            return f"whether the binlog holds changes that were not sent could not be read: {error.message}"
        return ""

    def _in_file(self, file: str, start: int, until: float, sent: Gtids) -> str:
        """Return why a file holds something unsent from an offset on; empty when it does not."""
        is_sent = False
        while True:
            events = self._database.rows(f"show binlog events in '{file}' from {start} limit {_EVENTS_AT_ONCE}")
            for _, begins, kind, _, _, info in events:
                if (begun := listed_gtid(str(kind), str(info))) is not None:
                    # A checkpoint's place may be ahead of transactions that its set has.
                    is_sent = sent.covers(begun)
                if not is_sent and (what := concerned(str(kind), str(info), self._chosen)):
                    return f"the binlog holds {what} at {file}:{begins} that headquarters does not have"
            if len(events) < _EVENTS_AT_ONCE:
                return ""
            start = int(events[-1][4])
            if time.monotonic() > until:
                return f"the binlog is too long to be listed: nothing unsent was found up to {file}:{start}"


def concerned(kind: str, info: str, chosen: Chosen) -> str:
    """Return what an event, as the server lists it, changes of captured tables; empty for nothing."""
    if kind == "Table_map":
        names = _TABLE_MAP.match(info)
        parts = names[1].split(".") if names else []
        # A dot may be within either name.
        for cut in range(1, len(parts)):
            if chosen(".".join(parts[:cut]), ".".join(parts[cut:])):
                return f"a change of {'.'.join(parts)}"
        return "" if names else "a change"
    if kind == "Transaction_payload":
        return "a compressed transaction"
    if kind.startswith("Query"):
        used = _USE.match(info)
        database = used[1].replace("``", "`") if used else ""
        statement = read_statement(info[used.end() :] if used else info, 0, database)
        tables = [*statement.tables, *(name for name, _ in statement.moved)]
        if statement.kind in {Kind.EMPTIES, Kind.MOVES} and (
            (statement.dropped is not None and chosen.has_some_of(statement.dropped))
            or any(chosen(*table) for table in tables)
        ):
            return f"a statement ({statement.opening})"
    return ""
