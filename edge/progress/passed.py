"""Transactions that an operator passes over, and the one at which the edge stopped: `headrace edge pass`.

The edge notes at which transaction decoding ended; the command takes no other one. A transaction that is passed stays listed, so
a log that is read again gives the same records. One JSON file in the state folder, for the holder of its lock.
"""

from pathlib import Path

import msgspec
from msgspec import json

from headrace import files
from headrace.errors import NeedsOperator
from headrace.formats import PASSED_TRANSACTIONS, UNREADABLE

_NAME = "passed.json"
#: Prefix of the message that takes the place of a transaction which was passed.
PREFIX = "headrace.passed"


class Passed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A transaction that is passed."""

    #: Its GTID, or the LSN of its commit, as the server writes it.
    transaction: str
    #: Who decided so, and when, in milliseconds since 1970.
    by: str
    at_ms: int

    @property
    def reason(self) -> str:
        """Why the tables that it touched need a copy."""
        return f"transaction {self.transaction} was passed over by {self.by}"

    def message(self, tables: list[str]) -> bytes:
        """Return the content of the record that takes its place; `tables` are those that need a copy."""
        return json.encode({"transaction": self.transaction, "by": self.by, "at_ms": self.at_ms, "tables": tables})


class _File(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    version: int = PASSED_TRANSACTIONS.version
    #: Of which the names are: a server that was reset, or another one, gives them again.
    epoch: int = 0
    #: The transaction at which decoding ended; empty for none.
    stopped: str = ""
    passed: list[Passed] = []


class PassedTransactions:
    """Those of one state folder."""

    def __init__(self, folder: Path) -> None:
        """Read them; raise NeedsOperator when that cannot be done."""
        self._path = folder / _NAME
        self._file = self._read()

    @property
    def stopped(self) -> str:
        """The transaction at which decoding ended; empty for none."""
        return self._file.stopped

    @property
    def by_name(self) -> dict[str, Passed]:
        """What is passed, by GTID or LSN."""
        return {passed.transaction: passed for passed in self._file.passed}

    def begin(self, epoch: int) -> None:
        """Begin a session of an epoch: the names of another epoch are forgotten, and where decoding ended before.

        It may not end there now. Raises NoSpace or NeedsOperator when that cannot be noted.
        """
        if self._file.epoch != epoch:
            self._file = _File(epoch=epoch)
            self._write()
        self.stop_at("")

    def stop_at(self, transaction: str) -> None:
        """Note at which transaction decoding ended, empty for none; raise NoSpace or NeedsOperator when that fails."""
        if transaction != self._file.stopped:
            self._file.stopped = transaction
            self._write()

    def add(self, passed: Passed) -> None:
        """Note that a transaction is passed; raise as `stop_at` does."""
        if passed.transaction not in self.by_name:
            self._file.passed.append(passed)
            self._write()

    def _read(self) -> _File:
        try:
            data = self._path.read_bytes()
            PASSED_TRANSACTIONS.check_json(data, str(self._path))
            return json.decode(data, type=_File)
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise files.problem(self._path, "read", error) from error
        except UNREADABLE as error:
            raise NeedsOperator(
                f"{self._path} is damaged",
                hint="Remove it; then pass the transactions again at which the edge stops.",
            ) from error

    def _write(self) -> None:
        files.write_private(self._path, json.encode(self._file))
