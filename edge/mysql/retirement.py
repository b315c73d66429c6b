"""What `headrace edge retire` looks at on a MariaDB or MySQL server: whether the binlog holds changes that were not sent.

An edge makes nothing in these servers, so there is nothing to remove. The binlog is listed by the server, event by event: no row
is decoded, and row events count by the tables that they name.
"""

import re
import time
from collections.abc import Callable
from typing import Self

from edge.mysql.checkpoint import COUNTED, MysqlCheckpoint, split_name
from edge.mysql.checks import FIRST, check_gtids, check_identity, check_log
from edge.mysql.connection import Database
from edge.mysql.ddl import Kind, read_statement
from edge.mysql.gtid import Gtids, listed_gtid
from edge.mysql.table_cache import Chosen
from edge.records.column_policy import Policy
from headrace.configuration.edge import EdgeFile, Mysql
from headrace.errors import NeedsOperator, NotConnected

_EVENTS_AT_ONCE = 2000
#: A binlog that takes longer to list, in seconds, is not listed to its end.
_PATIENCE_SECONDS = 60.0
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
            found = check_log(self._database, checkpoint)
            check_gtids(self._database, checkpoint)
            until = time.monotonic() + _PATIENCE_SECONDS
            number = split_name(checkpoint.file)[1]
            for file, _ in found.files:
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
