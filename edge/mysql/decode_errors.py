"""What the binlog may hold that is not followed, and what an operator does about it.

Each returns the NeedsOperator that edge/mysql/decoder.py raises; `where` says where in the log it was met. Nothing is skipped:
the log still holds it.
"""

from collections.abc import Callable
from typing import Final

from edge.mysql import events
from edge.mysql.ddl import Kind, Statement
from headrace.errors import NeedsOperator


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


def tagged_gtid(where: str) -> NeedsOperator:
    """Return the error of a GTID with a tag."""
    return NeedsOperator(
        f"a transaction has a tagged GTID {where}, which this release does not read",
        hint="Leave gtid_next at AUTOMATIC, without a tag.",
    )


def partial_json(where: str) -> NeedsOperator:
    """Return the error of an update without the whole of its values."""
    return NeedsOperator(
        f"an update tells only what changed in its JSON {where}: binlog_row_value_options is PARTIAL_JSON",
        hint="Run as an administrator: set global binlog_row_value_options = ''; and reconnect the writers.",
    )


def load_data(where: str) -> NeedsOperator:
    """Return the error of rows that came as a file."""
    return by_statement(Statement(Kind.REFUSED, opening="LOAD DATA"), where)


#: The events that say so by their type alone.
EVENTS: Final[dict[int, Callable[[str], NeedsOperator]]] = {
    events.INCIDENT: lost_events, events.ANONYMOUS_GTID: no_gtid, events.GTID_TAGGED: tagged_gtid,
    events.PARTIAL_UPDATE: partial_json, events.BEGIN_LOAD: load_data, events.EXECUTE_LOAD: load_data,
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
        f"the XA transaction {xid} commits {where}, and the log, which begins with {first}, does not tell what it prepared: "
        "its changes are lost",
        hint="Start a new epoch and copy the tables again. Then keep the binlog longer than a transaction stays prepared "
        "(binlog_expire_logs_seconds), and prepare none with sql_log_bin = 0.",
    )


def missing_columns(where: str) -> NeedsOperator:
    """Return the error of rows that are not whole."""
    return NeedsOperator(
        f"the log lacks columns {where}: binlog_row_image was not FULL",
        hint="Run as an administrator: set global binlog_row_image = 'FULL'; and reconnect the writers. "
        "Then start a new epoch.",
    )


def another_log(name: str, former: str) -> NeedsOperator:
    """Return the error of a file that does not come after the former one."""
    return NeedsOperator(
        f"the binlog goes on in {name}, after {former}: its files were renamed or reset",
        hint="Positions of before and after cannot be compared: run 'headrace edge init --adopt --new-epoch'.",
    )
