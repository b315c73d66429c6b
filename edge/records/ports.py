"""What the writer of transactions takes from an engine, and from the history of tables.

Implemented by edge/postgres, edge/mysql and edge/snapshot/table_history.py; written for edge/records/transaction_writer.py.
"""

from collections.abc import Iterable
from typing import Protocol, TypeVar

from edge.records.alterations import Announcement, TableDescription
from headrace.schema import TableSchema


class Transaction(Protocol):
    """What an engine has of a transaction when it begins."""

    #: The commit number of its positions, and when it committed, in milliseconds since 1970.
    commit: int
    commit_ms: int

    @property
    def id(self) -> bytes:
        """Its id as JSON."""


T_contra = TypeVar("T_contra", bound=Transaction, contravariant=True)


class Envelope(Protocol[T_contra]):
    """What an engine's records of one table share."""

    #: The fields of a schema record that name the database and the schema.
    database_names: bytes

    def source(self, transaction: T_contra, ordinal: int) -> bytes:
        """Return the `source` block up to and including the ordinal, without the closing quote."""


class Table(Protocol[T_contra]):
    """A captured table."""

    schema: TableSchema
    #: Whether its schema record was sent.
    schema_sent: bool
    #: `schema.table` as JSON.
    name: bytes

    @property
    def description(self) -> TableDescription | None:
        """What is compared with the table as it was before; None where that is not done."""

    @property
    def envelope(self) -> Envelope[T_contra]:
        """What its records share."""


class History(Protocol):
    """What tables looked like before (edge/snapshot/table_history.py)."""

    def announce(self, table: TableDescription, place: int, *, is_copied: bool = False) -> Announcement:
        """Note a table ahead of its schema record in the transaction at a place; the same answer each time there.

        `is_copied`: whether a copy of the whole table begins just there. Raises NoSpace or NeedsOperator where what was found
        cannot be made durable.
        """

    def knows(self, table: str, place: int) -> bool:
        """Return whether a table of this name may have sent records ahead of a place; unknown ones did not."""

    def names(self, prefix: str, place: int) -> list[str]:
        """Return the names, in order, that begin with a prefix, of tables that sent records ahead of a place."""

    def move(self, tables: Iterable[str], reason: str, place: int, *, recurs: bool = False) -> None:
        """Note that a transaction at a place changed tables' rows without records: their next schema records have the reason.

        `recurs`: any transaction may have the same, so that it is no reason for one copy after another. Raises NoSpace or
        NeedsOperator where that cannot be made durable.
        """

    def mark(self, table: str, reason: str) -> None:
        """Note that a table needs a copy, since the values of one of its rows did not arrive. Raises as `move` does."""

    def warn(self, name: str, words: str) -> None:
        """Add a warning about a table, by its own name, to what the status shows until the edge ends."""

    def empty(self, table: str) -> None:
        """Note that a table has no rows any more, and so needs no copy."""
