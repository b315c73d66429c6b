"""What connectors that read a binlog need around Debezium: a server that fits the checkpoint, and the schema history.

The history is a file in the state folder that the engine's process appends to (SchemaHistoryFile.java). It is never shorter than
it was when the checkpoint was written, since what a checkpoint confirms was read behind all changes of tables in it.
"""

import os
from pathlib import Path
from typing import Final

import msgspec

from edge.debezium.child import Server, history_lost, log_gone
from edge.mysql.checkpoint import MysqlGtids, listed_gtid
from headrace import files
from headrace.errors import NeedsOperator

#: In the state folder.
HISTORY: Final = "debezium-schema-history.jsonl"
#: Bytes of it that are looked through at once for the end of a line.
_PIECE: Final = 1 << 16
#: The settings in which MySQL, or MariaDB, has the GTIDs that it has logged.
_LOGGED: Final = ("gtid_executed", "gtid_binlog_pos")
#: What a server needs, where it has the setting at all; `connectors` of Debezium look at the others themselves.
_WANTED: Final = {"binlog_format": "ROW", "binlog_row_image": "FULL", "binlog_row_value_options": "", "gtid_mode": "ON"}


def compared_settings(server: Server) -> list[tuple[str, str, str]]:
    """Return name and value of the settings that are depended on, and what each has to be."""
    return [(name, server.settings[name], wanted) for name, wanted in _WANTED.items() if name in server.settings]


def check_settings(server: Server) -> None:
    """Raise NeedsOperator unless the server writes a log that can be read by GTIDs, with whole rows."""
    if wrong := [each for each in compared_settings(server) if each[1].upper() != each[2]]:
        found = ", ".join(f"{name} is {value or 'empty'!r}" for name, value, _ in wrong)
        sql = "; ".join(f"set global {name} = '{wanted}'" for name, _, wanted in wrong)
        raise NeedsOperator(
            f"the server's log does not carry what is needed: {found}", hint=f"{sql}; keep it in its configuration."
        )


def check_begun(server: Server) -> None:
    """Raise NeedsOperator where the log has no GTID yet: Debezium's offset of the first one's beginning has it as read."""
    logged = [server.settings[name] for name in _LOGGED if name in server.settings]
    if logged and not any(logged):
        raise NeedsOperator(
            "the server's binlog has no transaction with a GTID yet, behind which Debezium could begin",
            hint="Commit a change at the server, in any table; then run 'headrace edge init' again.",
        )


def check_log(server: Server, offset: str) -> None:
    """Raise NeedsOperator unless the binlog goes on at an offset, after the transactions that the offset has.

    So a log that was reset and has grown as long again is not taken for the former one: both servers number from 1 again.
    """
    known = str(msgspec.json.decode(offset, type=dict[str, object]).get("gtids") or "")
    if server.at_offset is None:
        raise log_gone("the binlog was purged or reset, or the server was restored from a backup")
    for kind, text in server.at_offset:
        if kind == "Gtid_list":
            holds = not text or set(text.split(",")) <= set(known.split(","))
        elif (begun := listed_gtid(kind, text)) is not None:
            holds = not MysqlGtids.parse(known).covers(begun)
        else:
            continue
        if not holds:
            raise log_gone(
                f"at its place is another one, with GTID {text[:80]}: the binlog was reset, or the server restored"
            )
        return


def make_history(folder: Path) -> None:
    """Begin a new history."""
    files.write_private(folder / HISTORY, b"")


def history_bytes(folder: Path) -> int:
    """Return how long the history is in whole lines, which are durable then; 0 for none.

    A line that is being written is not: it may be cut by a crash, and is taken off where the engine starts.
    """
    try:
        with (folder / HISTORY).open("rb") as file:
            end = file.seek(0, os.SEEK_END)
            while end:
                begin = max(0, end - _PIECE)
                file.seek(begin)
                lines = file.read(end - begin).rfind(b"\n") + 1
                end = begin + lines
                if lines:
                    break
            os.fsync(file.fileno())
            return end
    except FileNotFoundError:
        return 0


def check_history(folder: Path, at_least: int) -> None:
    """Raise NeedsOperator where the history is gone, or shorter than it was."""
    if history_bytes(folder) < max(at_least, 1):
        raise history_lost("is lost or cut short")
