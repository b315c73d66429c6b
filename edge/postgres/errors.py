"""What PostgreSQL complains of, by who must act: NotConnected for the loop, NeedsOperator with the SQL that fixes it.

Errors of an open connection are known by their SQLSTATE. While connecting libpq gives words only: known sentences are an
operator's matter, everything else is tried again. Messages of the server are passed on by their first line where its class of
SQLSTATE has words of objects, files and processes alone; of all others, which may hold values of rows, only the SQLSTATE is; and
of what comes out of a function, whose author chooses both.
"""

import re
from typing import Self

from edge.engine import LogTaken, StreamFailed
from headrace.errors import CorruptInput, NeedsOperator, NotConnected, ReplicationError

#: What to do when changes are lost to the slot.
CAPTURE_AGAIN = (
    "Drop the slot with pg_drop_replication_slot if it is still there, move the checkpoint file to another folder (and the "
    "spool, whose batches are then given up), and run 'headrace edge init --snapshot --replace' for a new slot, a new epoch and "
    "a copy of the tables that takes the place of what consumers have, rows that were deleted meanwhile included."
)
#: What to do when the slot is whole, and positions of before and after cannot be compared.
NEW_EPOCH = (
    "Move the checkpoint file to another folder and run 'headrace edge init --adopt --new-epoch': the source starts a new epoch, "
    "in which what the slot still has is sent again."
)


#: Where wal_sender_timeout is off, TCP's keepalives of the server end the process of an edge that is gone, after any time.
_FORGOTTEN_SECONDS = 600.0


class SlotTaken(LogTaken):
    """Another process of the server reads the slot."""

    def __init__(self, message: str, slot: str, pid: int) -> None:
        super().__init__(message)
        self.slot = slot
        #: The server's process that has the slot; 0 when the server did not name it.
        self.pid = pid

    def held_for(self, sender_timeout: float) -> Self:
        """Return itself, with how long a server whose wal_sender_timeout is this, in seconds, may keep what a dead edge held."""
        self.may_last = _FORGOTTEN_SECONDS if sender_timeout <= 0 else sender_timeout * 2 + type(self).may_last
        return self

    def lasting(self) -> NeedsOperator:
        """Return the error with how to end the process."""
        return NeedsOperator(
            f"slot {self.slot!r} is taken by process {self.pid} of the server",
            hint=f"Stop the other edge that reads it, or end the process: select pg_terminate_backend({self.pid});",
        )


#: Classes of SQLSTATE whose words name objects, settings, files or processes: the connection (08), a transaction's state (25),
#: who connects to what (28, 3D, 3F), what gave way to another (40), what statements name (42), resources (53), states of objects
#: (55), an operator's intervention (57), the server's system (58). Not those of data and constraints (22, 23), of functions and
#: `raise` (P0, 38, 39), of foreign servers (HV), of what is too long or not supported (54, 0A), of defects (XX).
_NAMING = {"00", "08", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58"}
_OF_VALUES = "a value of a row cannot be converted, computed or stored (the server's log has its words)"
_WITHHELD = {"22": _OF_VALUES, "23": _OF_VALUES, "P0": "a function refused (the server's log has its words)"}
#: Classes that are of the connection or of an operator's intervention, not of what the log holds.
_PASSING = {"00", "08", "28", "57"}

#: Sentences of a refused connection, and what to do.
_REFUSED = (
    (r"password authentication failed", "Check the user's password in [source.postgresql] password."),
    (r"no password supplied", "Give a reference to the password in [source.postgresql] password."),
    (r"role \".*\" does not exist", "Make the role: create role {user} login replication password '...';"),
    (r"role \".*\" is not permitted to log in", "Run as a superuser: alter role {user} login;"),
    (r"database \".*\" does not exist", "Check [source.postgresql] database."),
    (r"no pg_hba\.conf entry", "Add a line for user {user} to the server's pg_hba.conf, and reload it."),
    (r"pg_hba\.conf rejects", "Change the line for user {user} in the server's pg_hba.conf, and reload it."),
    (
        r"permission denied to start WAL sender|must be superuser or replication role",
        "Run as a superuser: alter role {user} replication;",
    ),
    (r"permission denied for database", "Run as a superuser: grant connect on database {database} to {user};"),
    (r"server does not support SSL", "Change [source.postgresql] sslmode, or turn SSL on in the server."),
    (r"certificate verify failed|root certificate file", "Check [source.postgresql] sslmode and the certificates."),
)


def connecting(words: str, address: str, user: str, database: str) -> ReplicationError:
    """Return the error of an attempt to connect that failed with these words."""
    line = _first_line(words)
    for pattern, hint in _REFUSED:
        if re.search(pattern, words):
            return NeedsOperator(
                f"database {address} refuses user {user}: {line}",
                hint=hint.format(user=quoted(user), database=quoted(database)),
            )
    return NotConnected(f"database {address} cannot be reached: {line}")


def running(
    state: str | None, words: str, address: str, user: str, *, context: str | None = None, slot: str = ""
) -> ReplicationError:
    """Return the error of a statement or stream, of a slot's if one is given, that ended with this SQLSTATE and these words.

    They may be in any language: numbers and the names of settings are the same in all. With a `context` of the server's it came
    out of a function, by `raise` with any SQLSTATE, or of a statement that one made.
    """
    if context:
        line, words = f"SQLSTATE {state}: {_WITHHELD['P0']}", ""
    elif state is None or state[:2] in _NAMING:
        line = _first_line(words)
    else:
        line = f"SQLSTATE {state}: {_WITHHELD.get(state[:2], 'the server failed (its log has its words)')}"
    if state == "55006" and not context:
        named, pid = re.search(r'["»]([^"«]+)["«]', words), re.search(r"PID\D*(\d+)", words)
        return SlotTaken(f"database {address}: {line}", slot or (named[1] if named else ""), int(pid[1]) if pid else 0)
    if state == "42501":
        if "WAL sender" in words or "replication" in words:
            hint = f"Run as a superuser: alter role {quoted(user)} replication;"
        else:
            hint = f"Grant user {user} what it lacks, or run the statement as a user who may."
        return NeedsOperator(f"database {address}: {line}", hint=hint).not_of_content()
    if state in {"53400", "53300"} and ("max_replication_slots" in words or "max_wal_senders" in words):
        return NeedsOperator(
            f"database {address}: {line}",
            hint="Raise max_replication_slots and max_wal_senders in the server and restart it, or drop unused slots.",
        ).not_of_content()
    if state in {"42P01", "3F000"}:
        return NeedsOperator(
            f"database {address}: {line}", hint="Check [source.postgresql] tables, each as schema.table."
        ).not_of_content()
    return NotConnected(f"database {address}: {line}")


#: What is wrong with a statement, by SQLSTATE or its class.
_STATEMENT_WRONG = {
    "22": "meets a value that is not of the type, or in the range, that it needs",
    "42": "is not valid SQL",
    "42703": "names a column that does not exist",
    "42P01": "names a table that does not exist",
    "42883": "uses an operator or function that does not exist for these types",
    "P0": "calls a function that refuses",
    "38": "calls a function that fails",
    "39": "calls a function that fails",
}


def stream_failed(state: str | None, words: str, address: str, user: str) -> ReplicationError:
    """Return the error of a stream that ended, with this SQLSTATE and these words."""
    error = running(state, words, address, user)
    if type(error) is not NotConnected or state is None or state[:2] in _PASSING:
        return error
    return StreamFailed(error.message, may_pass=state[:2] == "53")


def statement_failed(
    state: str | None, words: str, address: str, user: str, *, context: str | None = None
) -> ReplicationError:
    """Return the error of a question that an operator's own condition is part of."""
    if state is not None and state[:2] in {"0A", "22", "2B", "38", "39", "42", "54", "P0"} and state != "42501":
        # The server's words quote values: of rows that a condition or a row filter casts, and of the condition.
        what = _STATEMENT_WRONG.get(state) or _STATEMENT_WRONG.get(state[:2], "cannot be run")
        return NeedsOperator(
            f"database {address}: a statement over the table {what} (SQLSTATE {state})",
            hint="Check the condition that was given, the row filter of the publication, and the table's columns and policies. "
            "The server's log has its own words.",
        )
    return running(state, words, address, user, context=context)


def _first_line(words: str) -> str:
    lines = [line.strip() for line in words.splitlines() if line.strip()]
    fatal = [line for line in lines if "FATAL" in line]
    line = (fatal or lines or ["no reason given"])[0 if not fatal else -1]
    return re.sub(r"^(ERROR|FATAL|WARNING):\s+", "", line)[:300]


def quoted(name: str) -> str:
    """Return an identifier as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def corrupt(message: bytes, *, is_known: bool, place: str) -> CorruptInput:
    """Return the error of a message that is none of its type, or whose type is unknown."""
    wrong = "cannot be decoded" if is_known else "is of an unknown type"
    return CorruptInput(
        f"a message of type {message[:1]!r}, {len(message)} bytes long, {wrong}, {place}",
        hint="Nothing was skipped or confirmed: the log still holds it. Start the edge again; if it stops there again, "
        "look whether the server and its publication are of a kind that this release reads, and report it.",
    )
