"""Columns, digests and errors as contract.py has them, made of those that verification works with, and back. Pure."""

from headrace.errors import ConfigurationError, CorruptInput, NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.verify.canonical import Column
from headrace.verify.contract import ComparedColumn, ComparedTable, Failure
from headrace.verify.digest import Digest
from headrace.verify.engine import Forms, SourceTable


def compared(table: SourceTable, columns: list[Column], key: list[Column]) -> ComparedTable:
    """Return a table with its columns as they are sent."""
    return ComparedTable(
        name=str(table),
        columns=[ComparedColumn(name=each.name, in_silver=each.in_silver, nan=each.nan) for each in columns],
        key=[each.name for each in key],
    )


def columns_of(asked: ComparedTable, table: SourceTable, forms: Forms) -> tuple[list[Column], list[Column]]:
    """Return the columns, and the key's, of a table as its own catalog and the forms of its engine have them.

    The key is the catalog's, or none: keys of rows are answered, and so who asks cannot choose what columns make one.
    Raises CorruptInput when they are not the table's.
    """
    if asked.key not in ([], list(table.key)):
        raise CorruptInput(f"{table} has another key than the one that is asked for")
    found: dict[str, Column] = {}
    for each in asked.columns:
        kind = table.columns.get(each.name)
        made = None
        if kind is not None:
            made = (
                forms.absent(each.name)
                if each.in_silver is None
                else forms.column(each.name, kind, each.in_silver, nan=each.nan)
            )
        if made is None:
            raise CorruptInput(f"{table} has no column {each.name!r} that can be compared so")
        found[each.name] = made
    if not found.keys() >= set(asked.key):
        raise CorruptInput(f"the key of {table} is not among the columns to compare")
    return list(found.values()), [found[name] for name in asked.key]


def shown(digests: dict[int, Digest]) -> list[tuple[int, int, str, str]]:
    """Return digests as they are sent."""
    return [(cell, each.rows, str(each.first), str(each.second)) for cell, each in digests.items()]


def digests_of(sent: list[tuple[int, int, str, str]]) -> dict[int, Digest]:
    """Return digests that were sent."""
    return {cell: Digest(rows, int(first), int(second)) for cell, rows, first, second in sent}


_ERRORS = {each.__name__: each for each in (ConfigurationError, NeedsOperator, Retryable, NotConnected, CorruptInput)}


def failure(error: ReplicationError) -> Failure:
    """Return an error as it is sent: as the nearest class that decides who must act."""
    kind = next((each.__name__ for each in type(error).__mro__ if each.__name__ in _ERRORS), "NeedsOperator")
    return Failure(kind=kind, message=error.message, hint=error.hint)


def error_of(sent: Failure) -> ReplicationError:
    """Return an error that was sent."""
    return _ERRORS.get(sent.kind, NeedsOperator)(sent.message, hint=sent.hint)
