"""What a server has to be and to have for an edge to go on: its settings, its identity, its binlog.

Guarantees that nothing is made or changed here: whatever does not fit is a NeedsOperator with what happened, what is lost
if anything is, and what to run. Called by `init`, at each connection, and, while the log streams, by edge/mysql/engine.py.
"""

import re
from typing import Any, NamedTuple

from edge.mysql.checkpoint import COUNTED, MariadbGtids, MysqlCheckpoint, listed_gtid, split_name
from edge.mysql.connection import Database
from edge.mysql.errors import CAPTURE_AGAIN, NEW_EPOCH, NoEvent
from headrace.errors import NeedsOperator, NotConnected

#: The release of MySQL from which on replicas have other words in statements.
SHOW_REPLICAS = (8, 0, 22)
#: The release of MySQL from which on another statement shows where its binlog ends.
_BINARY_LOG_STATUS = (8, 2)
#: What owns a GTID, in `gtid_owned`.
_OWNER = re.compile(r"#\d+")
#: Where the first event of a file is.
FIRST = 4


class Log(NamedTuple):
    """A server's binlog: its files with their sizes, oldest first."""

    files: list[tuple[str, int]]

    @property
    def base(self) -> str:
        """The name of the files without their number."""
        return split_name(self.files[0][0])[0]

    @property
    def first(self) -> int:
        """The number of the oldest file."""
        return split_name(self.files[0][0])[1]

    @property
    def end(self) -> tuple[str, int]:
        """The newest file, and where it ends."""
        return self.files[-1]

    def retained(self, since: int) -> int:
        """Return how much log is after a place, in bytes."""
        numbered = ((split_name(name)[1], size) for name, size in self.files)
        return sum(max(0, size - (since & 0xFFFFFFFF if number == since >> 32 else 0)) for number, size in numbered
                   if number >= since >> 32)  # fmt: skip


class Setting(NamedTuple):
    """A setting that an edge needs, and what it is."""

    name: str
    wanted: str
    found: str
    #: What sets it, for the running server.
    sql: str
    #: Why it is needed.
    why: str

    @property
    def holds(self) -> bool:
        """Whether it is as needed."""
        return self.found.upper() in self.wanted.split("|")


_ROWS = "every change as rows"
_WANTED = (
    ("log_bin", "ON|1", "start the server with --log-bin", "the log itself"),
    ("binlog_format", "ROW", "set global binlog_format = 'ROW'", _ROWS),
    ("binlog_row_image", "FULL", "set global binlog_row_image = 'FULL'", "whole rows before and after"),
    ("binlog_row_metadata", "FULL", "set global binlog_row_metadata = 'FULL'", "names, keys, signs and character sets"),
)
_MYSQL_WANTED = (
    (
        "gtid_mode",
        "ON",
        "set global gtid_mode = 'ON', in the steps of the manual",
        "going on after the last transaction",
    ),
    ("binlog_row_value_options", "", "set global binlog_row_value_options = ''", "whole JSON documents"),
)
_MARIADB_WANTED = (
    ("gtid_strict_mode", "ON|1", "set global gtid_strict_mode = 1", "one order of transactions on every server"),
)


def settings(database: Database) -> list[Setting]:
    """Return what the server has of what an edge needs."""
    wanted = _WANTED + (_MARIADB_WANTED if database.is_mariadb else _MYSQL_WANTED)
    return [Setting(name, value, database.variable(name) or "", sql, why) for name, value, sql, why in wanted]


def check_settings(database: Database, *, mariadb: bool) -> None:
    """Raise NeedsOperator unless the server is of the kind that is named and writes a log that can be decoded."""
    if database.is_mariadb != mariadb:
        named, other = ("mariadb", "mysql") if mariadb else ("mysql", "mariadb")
        raise NeedsOperator(f"the server is {database.version}, not {named}", hint=f"Name it in [source.{other}].")
    wrong = [setting for setting in settings(database) if not setting.holds]
    if wrong:
        words = ", ".join(f"{setting.name} is {setting.found or 'not set'!r}" for setting in wrong)
        raise NeedsOperator(
            f"the server's log does not carry what an edge needs: {words}",
            hint="Run as an administrator, and keep it in the server's configuration: "
            + "; ".join(setting.sql for setting in wrong)
            + "; then let the writers connect again.",
        )


def identity(database: Database) -> tuple[int, str]:
    """Return the server's number and its own name for itself."""
    name = "server_uid" if database.is_mariadb else "server_uuid"
    return int(database.value("select @@global.server_id")), database.variable(name) or ""


def log(database: Database) -> Log:
    """Return the binlog's files; raise NeedsOperator when there is none."""
    rows = database.rows("show binary logs")
    if not rows:
        raise NeedsOperator("the server writes no binlog", hint="Start it with log_bin and a server_id.")
    return Log([(str(row[0]), int(row[1])) for row in rows])


def newest_file(database: Database) -> str:
    """Return the file that the binlog ends in; raise NeedsOperator when there is none."""
    return str(log_status(database)["File"])


def log_status(database: Database) -> dict[str, Any]:
    """Return what the server shows of its binlog: `File`, `Position`, `Binlog_Do_DB`, `Binlog_Ignore_DB`.

    At MySQL its `Position` may have transactions that its `Executed_Gtid_Set` has not: those that are committing.
    """
    newer = not database.is_mariadb and database.release >= _BINARY_LOG_STATUS
    rows = database.dictionaries("show binary log status" if newer else "show master status")
    if not rows:
        raise NeedsOperator("the server writes no binlog", hint="Start it with log_bin and a server_id.")
    return rows[0]


def check_log(database: Database, checkpoint: MysqlCheckpoint) -> Log:
    """Return the binlog; raise NeedsOperator unless it still continues the checkpoint."""
    binlog = log(database)
    number = split_name(checkpoint.file)[1]
    if binlog.base != checkpoint.base or split_name(binlog.end[0])[1] < number or (
        (binlog.end[0], binlog.end[1]) < (checkpoint.file, checkpoint.offset) and binlog.end[0] == checkpoint.file
    ):  # fmt: skip
        raise NeedsOperator(
            f"the binlog ends at {binlog.end[0]}:{binlog.end[1]}, before the checkpoint's {checkpoint.file}:{checkpoint.offset}: "
            "it was reset, or the server was restored from a backup",
            hint=CAPTURE_AGAIN,
        )
    if binlog.first > number:
        raise NeedsOperator(
            f"the binlog was purged: it begins with {binlog.files[0][0]}, and the changes from "
            f"{checkpoint.file}:{checkpoint.offset} (after GTID {checkpoint.gtids or 'none'}) to there are lost",
            hint=CAPTURE_AGAIN,
        )
    return binlog


def check_identity(database: Database, checkpoint: MysqlCheckpoint) -> None:
    """Raise NeedsOperator unless the server is that of the checkpoint.

    MariaDB makes its name of the port and of a network card, so a MariaDB that was moved has another one: there the same
    server_id and the same transactions at the checkpoint's place are enough.
    """
    server = identity(database)
    if server == (checkpoint.server_id, checkpoint.server):
        return
    if database.is_mariadb and server[0] == checkpoint.server_id and _has_place(database, checkpoint):
        return
    raise NeedsOperator(
        f"the server is another one: its server_id is {server[0]} and its name {server[1]!r}, the checkpoint was made with "
        f"{checkpoint.server_id} and {checkpoint.server!r}; offsets in its binlog are others",
        hint=f"Connect to the former server. {NEW_EPOCH}",
    )


def _has_place(database: Database, checkpoint: MysqlCheckpoint) -> bool:
    """Return whether the binlog of a MariaDB has the checkpoint's place, after the same transactions."""
    offset = checkpoint.offset if _is_offset(checkpoint) else FIRST
    gtids = database.value("select binlog_gtid_pos(%s, %s)", checkpoint.file, offset)
    if gtids is None:
        return False
    at_place = MariadbGtids.parse(str(gtids))
    if _is_offset(checkpoint):
        return at_place.is_left_of(checkpoint.gtid_set)
    # The set is ahead of such a place.
    return checkpoint.gtid_set.covers(at_place) and not missing(database, checkpoint)


def _is_offset(checkpoint: MysqlCheckpoint) -> bool:
    """Return whether the checkpoint's place is an offset at which its set was complete.

    It is the beginning of a file otherwise, as after `init --adopt`, or so far behind that the log has no offsets there.
    """
    return FIRST < checkpoint.offset < COUNTED


def missing(database: Database, checkpoint: MysqlCheckpoint) -> str:
    """Return the transactions that the checkpoint has and the server has not; empty for none.

    At MariaDB the last of each domain, of the domains that the server has at all.
    """
    if not database.is_mariadb:
        return str(database.value("select gtid_subtract(%s, @@global.gtid_executed)", checkpoint.gtids) or "")
    gtids = checkpoint.gtid_set
    # The one may lack what the server took over from another, the other what it wrote itself.
    logged, applied = (
        MariadbGtids.parse(str(database.value(f"select @@global.{name}") or ""))
        for name in ("gtid_binlog_pos", "gtid_current_pos")
    )
    return gtids.missing_in(logged.joined(applied)) if isinstance(gtids, MariadbGtids) else ""


def check_gtids(database: Database, checkpoint: MysqlCheckpoint) -> None:
    """Raise NeedsOperator when the server lacks transactions of the checkpoint, or has others ahead of the checkpoint's place.

    So a log that was reset and has grown as long again is not taken for the former one, nor is a server that was promoted
    before it had everything. Raises NotConnected while the server still commits what was read from its log, as it may for long
    when its commits wait for a replica.
    """
    is_offset = _is_offset(checkpoint)
    # Read first: what is committing now is in the one or, when it has committed meanwhile, in the other.
    owned = "" if database.is_mariadb else _OWNER.sub("", str(database.value("select @@global.gtid_owned") or ""))
    # What is ahead of an offset of its log, a MariaDB has.
    lacks = "" if is_offset and database.is_mariadb else missing(database, checkpoint)
    if lacks and owned and not database.value("select gtid_subtract(%s, %s)", lacks, owned):
        raise NotConnected(f"the server still commits GTID {lacks}, which the edge has read from its log")
    if lacks:
        raise NeedsOperator(
            f"the server has not executed what the checkpoint has: it lacks GTID {lacks}. It was promoted before it had them, "
            "reset, or restored from a backup, and the lake has their changes",
            hint=f"If another server has them, connect to that one. Otherwise the lake is ahead of this server. {CAPTURE_AGAIN}",
        )
    if not is_offset:
        return
    if not database.is_mariadb:
        _check_next(database, checkpoint)
    elif not _has_place(database, checkpoint):
        gtids = database.value("select binlog_gtid_pos(%s, %s)", checkpoint.file, checkpoint.offset)
        raise NeedsOperator(
            f"at {checkpoint.file}:{checkpoint.offset} the binlog is after GTID {gtids or 'none'}, the checkpoint after "
            f"{checkpoint.gtids or 'none'}: the binlog was reset, or the server was restored from a backup",
            hint=CAPTURE_AGAIN,
        )


def _check_next(database: Database, checkpoint: MysqlCheckpoint) -> None:
    """Raise NeedsOperator unless the log goes on at the checkpoint's place with what the checkpoint has not.

    MySQL numbers again from 1 after a reset, so its GTIDs alone do not show it.
    """
    where = f"{checkpoint.file}:{checkpoint.offset}"
    try:
        events = database.rows(f"show binlog events in '{checkpoint.file}' from {checkpoint.offset} limit 1")
    except NoEvent as error:
        raise NeedsOperator(
            f"at {where} no event of the binlog begins: it was reset, or the server was restored from a backup",
            hint=CAPTURE_AGAIN,
        ) from error
    for _, _, kind, _, _, text in events:
        begun = listed_gtid(str(kind), str(text))
        if begun is not None and checkpoint.gtid_set.covers(begun):
            raise NeedsOperator(
                f"at {where} the binlog goes on with GTID {begun}, which the checkpoint has: it was reset, or the server was "
                "restored from a backup",
                hint=CAPTURE_AGAIN,
            )


def gtids_at(database: Database, file: str, offset: int) -> str:
    """Return the GTID set of everything ahead of a place of the binlog."""
    if database.is_mariadb:
        gtids = database.value("select binlog_gtid_pos(%s, %s)", file, offset)
        if gtids is None:
            raise NeedsOperator(
                f"{file}:{offset} is no place in the binlog",
                hint="Run 'headrace edge init' again, or look at the files.",
            )
        return str(MariadbGtids.parse(str(gtids)))
    return executed(database)


def executed(database: Database) -> str:
    """Return the GTID set of all that a MySQL has executed."""
    return str(database.value("select @@global.gtid_executed") or "").replace("\n", "")


def retention_seconds(database: Database) -> float | None:
    """Return for how long the server keeps its binlog by age, whoever has read it; None where age removes nothing."""
    if (database.variable("binlog_expire_logs_auto_purge") or "").upper() == "OFF":
        return None
    days = float(database.variable("expire_logs_days") or 0) * 86_400
    return float(database.variable("binlog_expire_logs_seconds") or 0) or days or None


def retention_bytes(database: Database) -> tuple[int, str]:
    """Return how much of its binlog the server keeps, in bytes, and the setting; 0 where size removes nothing."""
    limits = ((int(database.variable(name) or 0), name) for name in ("max_binlog_total_size", "binlog_space_limit"))
    return next((each for each in limits if each[0]), (0, ""))
