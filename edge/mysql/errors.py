"""What MariaDB and MySQL complain of, by who must act: NotConnected for the loop, NeedsOperator with what fixes it.

Errors are known by their numbers. The server's words are passed on by their first line, which names objects, but not those of
statements over rows: these quote values.
"""

from collections.abc import Callable
from typing import Final

from edge.engine import LogTaken
from edge.mysql import events
from edge.mysql.ddl import Statement
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable

#: What to do when changes are lost to the source.
CAPTURE_AGAIN = (
    "Move the checkpoint file to another folder, run 'headrace edge init' for a new epoch, and copy the tables again. "
    "Then keep the binlog longer (binlog_expire_logs_seconds)."
)
#: What to do when the log is whole, and positions of before and after cannot be compared.
NEW_EPOCH = (
    "If it is the successor of the former server, run 'headrace edge init --adopt --new-epoch': the source goes on after the "
    "checkpoint's GTID, in a new epoch."
)

_ACCESS_DENIED, _NO_DATABASE, _NO_PRIVILEGE, _NO_TABLE_PRIVILEGE = 1045, 1044, 1227, 1142
_NO_BINLOG, _HOST_BLOCKED, _READING_FAILED, _TLS_REQUIRED, _NO_EVENTS = 1381, 1129, 1236, 3159, 1220
#: What passes: a lock or a time that ran out, a table that was altered, a deadlock.
_PASSING = frozenset({1205, 1213, 1412, 1317, 1969, 3024})
#: What ends a connection: it is lost, killed, idle for too long, or the server goes.
_ENDING = frozenset({0, 1053, 1152, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2055, 4031})


#: What is wrong with a statement, by the server's number.
_STATEMENT_WRONG = {
    1054: "names a column that does not exist",
    1064: "is not valid SQL",
    1142: "is not permitted to the user",
    1146: "names a table that does not exist",
    1292: "meets a value that is not of the type that it needs",
    1305: "uses a function that does not exist",
    1365: "divides by zero",
    1690: "meets a value that is out of range",
}


class ServerIdTaken(LogTaken):
    """Another reader of the binlog uses this source's server id."""

    def __init__(self, server_id: int) -> None:
        super().__init__(f"server id {server_id} is used by another replica")
        self._server_id = server_id

    def lasting(self) -> NeedsOperator:
        """Return the error with what to change."""
        return NeedsOperator(
            f"server id {self._server_id} is used by another replica or edge of this server",
            hint="Stop the other edge, or give this one a server_id that no other replica has.",
        )


class NoEvent(NeedsOperator):
    """At a place of the binlog no event begins."""


def connecting(number: int, words: str, address: str, user: str) -> ReplicationError:
    """Return the error of an attempt to connect that failed."""
    line = first_line(words)
    hints = {
        _ACCESS_DENIED: "Check user and password of the source, or make the user: "
        f"create user '{user}'@'%' identified by '...';",
        _HOST_BLOCKED: "Run on the server: flush hosts;",
        _TLS_REQUIRED: "Set sslmode = 'require' for the source.",
    }
    if number in hints:
        return NeedsOperator(f"server {address} refuses user {user}: {line}", hint=hints[number])
    return NotConnected(f"server {address} cannot be reached: {line}")


def running(number: int, words: str, address: str, user: str) -> ReplicationError:
    """Return the error of a statement that failed."""
    line = first_line(words)
    if number in {_NO_PRIVILEGE, _NO_DATABASE, _NO_TABLE_PRIVILEGE}:
        return NeedsOperator(
            f"server {address}: {line}",
            hint=f"Run as an administrator: grant replication slave, replication client on *.* to {user}; "
            "in MariaDB also: grant replication master admin, binlog monitor on *.* to the same user.",
        ).not_of_content()
    if number == _NO_BINLOG:
        return NeedsOperator(
            f"server {address} writes no binlog", hint="Start it with log_bin and a server_id."
        ).not_of_content()
    if number == _NO_EVENTS:
        return NoEvent(f"server {address}: {line}", hint="Look at the binlog files and the error log of the server.")
    return NotConnected(f"server {address}: {line}")


def statement_failed(number: int, _words: str, address: str) -> ReplicationError:
    """Return the error of a question about a table, which an operator's own condition may be part of.

    The server's words quote values: of rows that a condition casts, and of the condition; and a function chooses its own.
    """
    if number in _PASSING:
        return Retryable(f"server {address}: a statement over the table was ended (error {number})")
    if number in _ENDING:
        return NotConnected(
            f"server {address}: the connection ended during a statement over the table (error {number})"
        )
    what = _STATEMENT_WRONG.get(number, "cannot be run")
    return NeedsOperator(
        f"server {address}: a statement over the table {what} (error {number})",
        hint="Check the condition that was given, the table's columns, and that the user may select from the table.",
    )


def streaming(number: int, words: str, address: str, user: str, server_id: int, since: str) -> ReplicationError:
    """Return the error that ended the stream; `since` is where it was to go on."""
    line = first_line(words)
    if number != _READING_FAILED:
        return running(number, words, address, user)
    lower = line.lower()
    if "same server_uuid" in lower or "same server_id" in lower or "server_uuid/server_id" in lower:
        return ServerIdTaken(server_id)
    if "purged" in lower or "could not find" in lower or "not in the master's binlog" in lower or "too old" in lower:
        return NeedsOperator(
            f"the binlog of {address} no longer holds what follows {since}: changes after it are lost: {line}",
            hint=CAPTURE_AGAIN,
        ).not_of_content()
    if "diverge" in lower or "has more gtids" in lower or "out of order" in lower:
        return NeedsOperator(
            f"the binlog of {address} does not continue {since}: the server was reset, or is another one: {line}",
            hint=CAPTURE_AGAIN,
        ).not_of_content()
    if "shutdown" in lower or "is shutting down" in lower:
        return NotConnected(f"server {address} ended the stream: {line}")
    return NeedsOperator(
        f"server {address} cannot send its binlog from {since} on: {line}",
        hint="Look at the binlog files and the error log of the server. Nothing was skipped or confirmed.",
    ).not_of_content()


def first_line(words: str) -> str:
    """Return the first line of a server's message, shortened."""
    return " ".join(words.split("\n", 1)[0].split())[:300] or "no reason given"


def lost_events(where: str) -> NeedsOperator:
    """Return the error of a server that could not log everything."""
    return NeedsOperator(
        f"the server noted that changes are missing in its log {where} (LOST_EVENTS)",
        hint="Look at its error log. Start a new epoch and copy the tables again.",
    )


def no_gtid(where: str) -> NeedsOperator:
    """Return the error of a transaction without GTID."""
    return NeedsOperator(
        f"a transaction has no GTID {where}: gtid_mode is not ON",
        hint="Turn it on in the steps of MySQL's manual: gtid_mode = ON, enforce_gtid_consistency = ON.",
    )


def partial_json(where: str) -> NeedsOperator:
    """Return the error of an update without the whole of its values."""
    return NeedsOperator(
        f"an update has only what changed in its JSON {where}: binlog_row_value_options is PARTIAL_JSON",
        hint="Run as an administrator: set global binlog_row_value_options = ''; and reconnect the writers.",
    )


#: The errors that follow from an event's type alone.
EVENTS: Final[dict[int, Callable[[str], NeedsOperator]]] = {
    events.INCIDENT: lost_events, events.ANONYMOUS_GTID: no_gtid,
}  # fmt: skip


def by_statement(statement: Statement, where: str) -> NeedsOperator:
    """Return the error of rows that were changed by a statement."""
    return NeedsOperator(
        f"rows were changed by a statement ({statement.opening or 'unknown'}) {where}: "
        "binlog_format is not ROW for every session",
        hint="Run as an administrator: set global binlog_format = 'ROW'; and reconnect the writers. The rows that were "
        "changed are not in the log: start a new epoch and copy the tables again.",
    )


def rolled_back(where: str) -> NeedsOperator:
    """Return the error of a transaction that kept some of its rows when it was rolled back."""
    return NeedsOperator(
        f"a transaction was rolled back in part {where}, and its rows are in the log all the same",
        hint="It mixes tables that roll back with tables that do not (MyISAM, Aria, MEMORY): start a new epoch and "
        "copy the tables again; then write to such tables in transactions of their own.",
    )


def not_prepared(xid: str, first: str, where: str) -> NeedsOperator:
    """Return the error of a transaction whose rows are not in the log any more when it commits."""
    return NeedsOperator(
        f"the XA transaction {xid} commits {where}, and the log, which begins with {first}, does not have what it prepared: "
        "its changes are lost",
        hint="Start a new epoch and copy the tables again. Then keep the binlog longer than a transaction stays prepared "
        "(binlog_expire_logs_seconds), and prepare none with sql_log_bin = 0.",
    )


#: Why a log lacks columns.
NOT_WHOLE = "binlog_row_image was not FULL, or the table's generated columns are others now"


def missing_columns(where: str) -> NeedsOperator:
    """Return the error of rows that are not whole."""
    return NeedsOperator(
        f"the log lacks columns {where}: {NOT_WHOLE}",
        hint="Run as an administrator: set global binlog_row_image = 'FULL'; and reconnect the writers. "
        "Then start a new epoch.",
    )


def another_log(name: str, former: str) -> NeedsOperator:
    """Return the error of a file that does not come after the former one."""
    return NeedsOperator(
        f"the binlog goes on in {name}, after {former}: its files were renamed or reset",
        hint="Positions of before and after cannot be compared: run 'headrace edge init --adopt --new-epoch'.",
    )
