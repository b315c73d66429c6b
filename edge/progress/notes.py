"""What the edge notes in its state folder next to the checkpoint: by which settings records are written, and which transactions
an operator passes over (`headrace edge pass`). A JSON file for each, for the holder of the folder's lock.

A schema record goes ahead of a table's first change in each session. The far side drops it with that change where it has the
change already, which is right as long as the schema is the same as before. After `[records]`, `[policy]` or the release was
changed it is not: the changes behind would be read by the former schema. So where records of other settings were written before,
every change that the far side may have carries its schema record (edge/records/batcher.py): whichever change is the first that is
new, its schema goes ahead of it. After a stop with everything acknowledged there is no such change, or only those of a
transaction that was sent in part.

The edge also notes at which transaction decoding ended; the command passes no other one. A transaction that is passed stays
listed, so a log that is read again gives the same records.
"""

import hashlib
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import json

from edge.progress.checkpoint import Checkpoint
from headrace import __version__, files
from headrace.configuration.databases import UNPROVEN
from headrace.configuration.edge import EdgeFile
from headrace.errors import NeedsOperator, ReplicationError
from headrace.formats import PASSED_TRANSACTIONS, UNREADABLE
from headrace.position import Position

_log = logging.getLogger(__name__)

_SETTINGS_FILE = "records.json"
#: Beyond all places: where the note is lost of what was sent of a log whose end nobody names.
_BEYOND_ALL: Final = 1 << 128


class _Note(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    version: int = 1
    #: Fingerprint of the settings by which records are written.
    settings: str
    #: Place up to which the far side may have records of other settings; 0 for none.
    others_until: int = 0
    #: Place up to which anything may have been sent, noted before it is: of a log whose end Debezium does not name.
    sent_until: int | msgspec.UnsetType = msgspec.UNSET
    #: The last position that was ever sent, noted when the edge stopped with everything acknowledged; empty while it runs.
    stopped_at: str = ""


class RecordSettings:
    """The note of one state folder; for the capturing thread alone."""

    def __init__(self, folder: Path, config: EdgeFile) -> None:
        self._path = folder / _SETTINGS_FILE
        self._settings = fingerprint(config)
        # The place up to which a former process may have sent, by its log; None before the first session.
        self._sent_until: int | None = None
        names = config.source.debezium
        self._names_end = names is None or names.connector not in UNPROVEN
        self._note: _Note | None = None

    def begin(self, acknowledged: Position, log_end: Callable[[], int]) -> int:
        """Return the place up to which each change needs its schema record, 0 for none; call it before anything is sent.

        `log_end` returns the place where the source's log ends now: no former process has sent anything beyond it. Raises NoSpace
        or NeedsOperator when the note cannot be written.
        """
        former = self.read(self._path.parent)
        was_clean = acknowledged.is_start or (former is not None and former.stopped_at == str(acknowledged))
        noted: int | msgspec.UnsetType = msgspec.UNSET
        if not self._names_end:
            noted = former.sent_until if former is not None else noted
            noted = noted or (acknowledged.commit + 1 if was_clean else _BEYOND_ALL)

        def find_end() -> int:
            return noted or log_end()

        if self._sent_until is None:
            self._sent_until = 0 if was_clean else find_end()
        until = former.others_until if former is not None and former.settings == self._settings else None
        if acknowledged.is_start:
            until = 0
        elif until is None:
            until = acknowledged.commit if was_clean else find_end()
            _log.info(
                "records are written by other settings than before: schema records go ahead of each change for a while"
            )
        if until < acknowledged.commit:
            until = 0
        note = self._note = _Note(settings=self._settings, others_until=until, sent_until=noted)
        if note != former:
            self._write(note)
        return until

    def note_sent(self, place: int) -> None:
        """Note that all up to a place may be sent, where no later process can ask for a log's end; raise as `begin` does."""
        note = self._note
        if note is not None and not self._names_end and place > (note.sent_until or 0):
            self._note = msgspec.structs.replace(note, sent_until=place)
            self._write(self._note)

    @property
    def sent_until(self) -> int:
        """The place up to which a former process may have sent what is not acknowledged; 0 for none, and before `begin`."""
        return self._sent_until or 0

    def stopped(self, checkpoint: Checkpoint, sent: Position) -> None:
        """Note that everything that was ever sent is acknowledged, if it is; `sent` is the last that this process has sent."""
        note = self.read(self._path.parent)
        if note is None or self._sent_until is None:
            return
        if checkpoint.confirmed >= self._sent_until and sent <= checkpoint.position:
            try:
                self._write(msgspec.structs.replace(note, stopped_at=checkpoint.acknowledged))
            except ReplicationError as error:
                _log.warning("%s", error.message)

    @staticmethod
    def read(folder: Path) -> _Note | None:
        """Return the note of a state folder; None where there is none."""
        try:
            return msgspec.json.decode((folder / _SETTINGS_FILE).read_bytes(), type=_Note)
        except FileNotFoundError:
            return None
        except (OSError, *UNREADABLE):
            # As if nothing were known: more schema records than needed.
            _log.warning("%s cannot be read, and is written again", folder / _SETTINGS_FILE)
            return None

    def _write(self, note: _Note) -> None:
        files.write_private(self._path, msgspec.json.encode(note))


def all_acknowledged(folder: Path, checkpoint: Checkpoint) -> bool:
    """Whether the former process had everything acknowledged that it or one before it has ever sent or spooled."""
    note = RecordSettings.read(folder)
    if checkpoint.promised not in {None, checkpoint.position}:
        return False
    return checkpoint.position.is_start if note is None else note.stopped_at == checkpoint.acknowledged


def fingerprint(config: EdgeFile) -> str:
    """Return a sum over all in a configuration that decides how rows become records; secrets are references in it."""
    source = config.source
    zero_dates = [names.zero_dates for names in (source.mariadb, source.mysql) if names is not None]
    parts = (__version__, config.records, config.policy, zero_dates)
    return hashlib.sha256(msgspec.json.encode(parts, enc_hook=repr)).hexdigest()


_PASSED_FILE = "passed.json"
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
        self._path = folder / _PASSED_FILE
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
