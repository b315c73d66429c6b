"""What the history of tables is on disk: one JSON file, and what of it is compared (edge/snapshot/table_history.py)."""

import logging
from pathlib import Path

import msgspec

from edge.records.alterations import KnownColumn, Published, TableDescription
from headrace import files
from headrace.formats import TABLE_HISTORY

_log = logging.getLogger(__name__)


class Form(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """What a table looked like, from some place in the log on."""

    name: str
    columns: tuple[KnownColumn, ...]
    schema: str
    #: Place of the first transaction whose records are of it.
    since: int
    rewritten: list[str] | None = None
    #: Place of the transaction whose schema record reported that; None before.
    reported: int | None = None
    #: Place up to which the far side may have records that were written by another description.
    others_until: int = 0
    #: The highest number of a column, and the columns that the edge's policy left out.
    newest: int = 0
    left_out: tuple[str, ...] = ()

    def describes(self, table: TableDescription) -> bool:
        """Whether the log has the same of a table."""
        return self.name == table.name and [it.shown for it in self.columns] == [it.shown for it in table.columns]


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a table needs a copy, and since when."""

    reasons: list[str]
    #: In milliseconds since 1970.
    at_ms: int


class HistoryFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """All that is noted of a source's tables."""

    version: int = TABLE_HISTORY.version
    #: The epoch that places are of.
    epoch: int = 0
    tables: dict[str, list[Form]] = {}
    #: The last names of tables that were dropped, by identity: another table of that name does not have the rows of the former.
    dropped: dict[str, str] = {}
    needs_copy: dict[str, Mark] = {}
    #: When a copy was last requested for what any transaction may do to a table, by its name, in milliseconds since 1970.
    recurred: dict[str, int] = {}
    #: Labels of enum types by type, each by the database's number of it.
    labels: dict[str, dict[str, str]] = {}
    #: Whether tables may have sent records that are not in this file: it was lost once.
    incomplete: bool | msgspec.UnsetType = msgspec.UNSET
    #: What was published of which tables; None before it was looked at.
    published: Published | None = None


def read(path: Path) -> HistoryFile | None:
    """Return what a file holds, None where there is none; raise NeedsOperator when it cannot be read."""
    try:
        data = path.read_bytes()
        TABLE_HISTORY.check_json(data, str(path))
        return msgspec.json.decode(data, type=HistoryFile)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise files.problem(path, "read", error) from error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        # As if nothing were known: more schema records than needed, and alterations of meanwhile are not found.
        _log.warning("%s is damaged, and is written again", path)
        return HistoryFile(incomplete=True)


def unreported(form: Form) -> list[str]:
    """Return the reasons that no schema record has had yet."""
    return (form.rewritten or []) if form.reported is None else []


def rows_moved(known: str, found: str) -> str:
    """Return how rows came or went with partitions; a partition that is new and was made as one had none."""
    before, after = _partitions(known), _partitions(found)
    gone = before.keys() - after.keys()
    if gone or any(number not in before and had_rows for number, (had_rows, _) in after.items()):
        return "partitions were attached, detached or dropped"
    # Releases before have no files.
    emptied = [number for number, (_, file) in after.items() if before.get(number, (False, ""))[1] not in ("", file)]
    return "partitions were truncated" if emptied else ""


def _partitions(listed: str) -> dict[str, tuple[bool, str]]:
    """Return by number whether a partition had rows before it was one, and the file with which it was last emptied."""
    entries = [entry.split(":") for entry in listed.split()]
    return {number.rstrip("+"): (number.endswith("+"), files[-1] if files else "") for number, *files in entries}
