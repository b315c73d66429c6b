"""What headquarters asks of a verification in a region, and what the edge answers: the data of requests of kind `verify`.

A verification is a session: the edge holds one snapshot open, and headquarters asks for one step after the other, each bound to
that snapshot. A step that takes longer than a request may is asked for again, without doing it again. No SQL crosses: a request
names tables, columns and silver's types, of which the edge makes the same canonical texts as headquarters; so `VERIFICATION`
(headrace/formats.py) grows whenever a canonical text changes. Answers hold names of tables and columns, counts, sums, hashes,
and keys of rows that differ.

Columns, digests and errors as contract.py has them, made of those that verification works with, and back. Pure.
"""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.formats import UNREADABLE, VERIFICATION, explain
from headrace.verify.canonical import LONGEST_NAME, Column, SilverType
from headrace.verify.comparison import MOST_CELLS, Digest, Engine, Forms, Grid, SourceTable

#: A session in which nothing was asked for so long is over, and its snapshot is gone, in seconds.
IDLE_SECONDS = 120
#: Keys of one request, and columns of all tables of one answer, at most.
MOST_KEYS, MOST_COLUMNS = 1000, 20_000
#: Characters of a message that an error in a region has.
_LONGEST = 2000
#: Columns of one table that a request names at most: as many as any server's table has.
_MOST_TABLE_COLUMNS = 4096

_Session = Annotated[str, Meta(pattern=r"^[0-9a-f]{16,64}$")]
_Table = Annotated[str, Meta(min_length=3, max_length=500)]
_Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{32}$")]
_Number = Annotated[int, Meta(ge=0)]
_Cells = Annotated[list[_Number], Meta(max_length=MOST_CELLS)]
_Name = Annotated[str, Meta(max_length=LONGEST_NAME)]


class _Part(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Of a request."""


class ComparedColumn(_Part, frozen=True, kw_only=True):
    """A column of a table, and what silver holds."""

    name: _Name
    #: None for a column that silver does not have.
    in_silver: SilverType | None = None
    nan: bool = False


class ComparedTable(_Part, frozen=True, kw_only=True):
    """A table and the columns by which it is compared."""

    #: `schema.table`.
    name: _Table
    columns: Annotated[list[ComparedColumn], Meta(max_length=_MOST_TABLE_COLUMNS)] = []
    #: Names of key columns among them: the table's own key, or none.
    key: Annotated[list[_Name], Meta(max_length=_MOST_TABLE_COLUMNS)] = []


class Open(_Part, tag="open", tag_field="do", frozen=True, kw_only=True):
    """Take the snapshot; `placed`, at a place of the log. Answered with an `Opened`."""

    placed: bool = True


class Tables(_Part, tag="tables", tag_field="do", frozen=True, kw_only=True):
    """Name the tables, from one of them on. Answered with a `Listed`."""

    start: _Number = 0


class Measure(_Part, tag="measure", tag_field="do", frozen=True, kw_only=True):
    """Answered with a `Measured`."""

    table: ComparedTable


class Count(_Part, tag="count", tag_field="do", frozen=True, kw_only=True):
    """Answered with a number of rows."""

    table: ComparedTable


class Digests(_Part, tag="digests", tag_field="do", frozen=True, kw_only=True):
    """Answered with `[cell, rows, first sum, second sum]` of each cell that is not empty; sums are text, as they are large."""

    table: ComparedTable
    grid: Grid
    cells: _Cells | None = None


class Hashes(_Part, tag="hashes", tag_field="do", frozen=True, kw_only=True):
    """Answered with `[hash of the key, hash of the row]`."""

    table: ComparedTable
    grid: Grid
    cells: _Cells
    most: Annotated[int, Meta(ge=1, le=10_000)]


class Rows(_Part, tag="rows", tag_field="do", frozen=True, kw_only=True):
    """Answered with `Row`s: of rows that differ, so their keys are in the answer."""

    table: ComparedTable
    grid: Grid
    cells: _Cells
    key_hashes: Annotated[list[_Hash], Meta(max_length=MOST_KEYS)]


class Idle(_Part, tag="idle", tag_field="do", frozen=True, kw_only=True):
    """Answered with whether the log has no change between a transaction and the snapshot."""

    commit: _Number


class Keep(_Part, tag="keep", tag_field="do", frozen=True, kw_only=True):
    """Keep the session, which is idle; of no number."""


class Close(_Part, tag="close", tag_field="do", frozen=True, kw_only=True):
    """End the session."""


Step = Open | Tables | Measure | Count | Digests | Hashes | Rows | Idle | Keep | Close


class Arguments(_Part, frozen=True, kw_only=True):
    """The arguments of a request of kind `verify`."""

    version: int
    #: Chosen by who asks.
    session: _Session
    #: From 0 on, which is `Open`: one after the other. The number of the last one again asks for its answer.
    step: _Number
    #: None to wait for the answer of the step.
    what: Step | None = None


class Failure(msgspec.Struct, frozen=True, kw_only=True):
    """An error in the region."""

    #: A class of headrace/errors.py.
    kind: str
    message: str
    hint: str = ""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an answer."""

    state: Literal["working", "done", "failed"]
    #: Rows that the step has summed up so far.
    rows: int = 0
    #: Of `done`: what the step is answered with.
    result: Any = None
    failure: Failure | None = None


class Opened(msgspec.Struct, frozen=True, kw_only=True):
    """A snapshot that was taken."""

    engine: Engine
    #: Place in the log, None where none was asked for.
    commit: int | None = None
    place: str = ""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """Some of the tables."""

    tables: list[SourceTable]
    #: Of all tables.
    total: int
    sequences: list[str] = []


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What the ranges of a table are chosen by."""

    about: int
    #: Least and greatest number of the leading key column; None when it is no integer, or without rows.
    bounds: tuple[int, int] | None = None


def encode_arguments(session: str, step: int, what: Step | None) -> dict[str, Any]:
    """Return the arguments of a request."""
    fields: dict[str, Any] = msgspec.to_builtins(
        Arguments(version=VERIFICATION.version, session=session, step=step, what=what)
    )
    return fields


def parse_arguments(fields: dict[str, Any]) -> Arguments:
    """Return the arguments that a request has.

    Raises NeedsOperator for another version, ConfigurationError for what is none.
    """
    version = fields.get("version")
    if isinstance(version, int):
        VERIFICATION.check(version, "a request to verify")
    try:
        arguments = msgspec.convert(fields, Arguments)
    except UNREADABLE as error:
        raise ConfigurationError(f"a request to verify is not understood: {explain(error)}") from error
    if not _has_ranges(arguments.what):
        raise ConfigurationError("a request to verify is not understood: its ranges are none")
    return arguments


def _has_ranges(what: Step | None) -> bool:
    """Whether the ranges of a step, if it has any, are some, and within what `ranges` makes."""
    if not isinstance(what, Digests | Hashes | Rows):
        return True
    grid = what.grid
    return all(span.is_valid for span in (grid.span, *grid.within)) and all(
        cell < grid.cells for cell in what.cells or ()
    )


def describe_table(table: SourceTable, columns: list[Column], key: list[Column]) -> ComparedTable:
    """Return a table with its columns as they are sent."""
    return ComparedTable(
        name=str(table),
        columns=[ComparedColumn(name=each.name, in_silver=each.in_silver, nan=each.nan) for each in columns],
        key=[each.name for each in key],
    )


def columns_of(compared: ComparedTable, table: SourceTable, forms: Forms) -> tuple[list[Column], list[Column]]:
    """Return the columns, and the key's, of a table as its own catalog and the forms of its engine have them.

    The key is the catalog's, or none: keys of rows are answered, and so who asks cannot choose what columns make one.
    Raises CorruptInput when they are not the table's.
    """
    if compared.key not in ([], list(table.key)):
        raise CorruptInput(f"{table} has another key than the one that is asked for")
    columns: dict[str, Column] = {}
    for each in compared.columns:
        kind = table.columns.get(each.name)
        column = None
        if kind is not None:
            column = (
                forms.absent(each.name)
                if each.in_silver is None
                else forms.column(each.name, kind, each.in_silver, nan=each.nan)
            )
        if column is None:
            raise CorruptInput(f"{table} has no column {each.name!r} that can be compared so")
        columns[each.name] = column
    if not columns.keys() >= set(compared.key):
        raise CorruptInput(f"the key of {table} is not among the columns to compare")
    return list(columns.values()), [columns[name] for name in compared.key]


def encode_digests(digests: dict[int, Digest]) -> list[tuple[int, int, str, str]]:
    """Return digests as they are sent."""
    return [(cell, each.rows, str(each.first), str(each.second)) for cell, each in digests.items()]


def decode_digests(sent: list[tuple[int, int, str, str]]) -> dict[int, Digest]:
    """Return digests that were sent; raise CorruptInput for what is none."""
    try:
        return {cell: Digest(rows, int(first), int(second)) for cell, rows, first, second in sent}
    except ValueError as error:
        raise CorruptInput("the edge's answer to 'verify' is not understood: a sum is no number") from error


_ERRORS = {each.__name__: each for each in (ConfigurationError, NeedsOperator, Retryable, NotConnected, CorruptInput)}


def failure(error: ReplicationError) -> Failure:
    """Return an error as it is sent: as the nearest class that decides who must act."""
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS), "NeedsOperator")
    return Failure(kind=kind, message=error.message, hint=error.hint)


def error_of(sent: Failure) -> ReplicationError:
    """Return an error that was sent."""
    return _ERRORS.get(sent.kind, NeedsOperator)(sent.message[:_LONGEST], hint=sent.hint[:_LONGEST])
