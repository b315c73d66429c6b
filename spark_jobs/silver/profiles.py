"""What a range of bronze holds, as the load needs it to choose what is done: by source and table, without any row's value.

Found by batch_profile.py.
"""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from functools import cached_property

from spark_jobs.silver.schema_versions import SchemaRecord
from spark_jobs.silver.truncates import Truncate
from spark_jobs.state.published import Positions


@dataclass(frozen=True, kw_only=True)
class TableProfile:
    """What one source has for one table in a range; flags may count changes beyond the high watermark; positions decide."""

    source: str
    table: str
    #: Changes in the range, and roughly of how many keys.
    changes: int
    keys: int
    #: Position of the first change.
    first: str
    #: Position of the last change.
    final: str
    truncates: tuple[Truncate, ...]
    #: Whether rows are deleted.
    deletes: bool
    #: Whether an update lacks columns that the log did not carry.
    partial: bool
    #: Whether an update may have changed a key.
    rekeyed: bool
    #: Whether rows are updated or deleted.
    rewrites: bool
    #: Position of the first update or delete that has neither a key nor the whole old row; None when there is none.
    keyless: str | None

    @property
    def only_truncates(self) -> bool:
        """Whether no change is of a row."""
        return self.changes <= len(self.truncates)


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Rows of a table without a key that a source took, and that silver does not have."""

    source: str
    rows: int
    #: Position of the first change that took one.
    position: str


@dataclass(frozen=True, kw_only=True)
class Reached:
    """How far a range goes of one source."""

    #: Position of the last record that ends a transaction; None when none does.
    last: str | None
    #: When that one was committed, in milliseconds; None when none does.
    last_ms: int | None
    #: Position of the last record.
    final: str


@dataclass(frozen=True, kw_only=True)
class Beyond:
    """What a source has beyond its high watermark, and the next load needs."""

    #: Changes of tables.
    changes: int
    #: Position of the last record.
    upto: str


@dataclass(frozen=True, kw_only=True)
class BatchProfile:
    """What bronze holds of a stream after its low watermarks, up to its high watermarks."""

    high: Positions
    #: Profiles by source and table, up to the high watermarks alone.
    seen: list[TableProfile]
    #: When the last change up to a source's high watermark was committed, in milliseconds, of sources that state it.
    committed_ms: dict[str, int]
    #: What is beyond the high watermark of a source, by source.
    beyond: dict[str, Beyond]
    #: In position order.
    records: list[SchemaRecord]
    #: Position of the last record up to the high watermark, by source and partition of its records.
    partitions: dict[str, dict[str, str]] = field(default_factory=dict)

    def tables(self) -> set[str]:
        """Return the tables for which there is something to do: the mark of a copy counts."""
        return {profile.table for profile in self.seen} | {
            record.table for record in self.records if record.mark is not None
        }

    def without(self, names: Collection[str]) -> "BatchProfile":
        """Return what is there for other tables than some."""
        if not names:
            return self
        seen = [profile for profile in self.seen if profile.table not in names]
        return replace(self, seen=seen, records=[record for record in self.records if record.table not in names])

    def of_table(self, table: str) -> tuple[list[TableProfile], list[SchemaRecord]]:
        """Return what is there for one table, and its schema records."""
        return self._by_table.get(table, ([], []))

    @cached_property
    def _by_table(self) -> dict[str, tuple[list[TableProfile], list[SchemaRecord]]]:
        by_table: dict[str, tuple[list[TableProfile], list[SchemaRecord]]] = {}
        for profile in self.seen:
            by_table.setdefault(profile.table, ([], []))[0].append(profile)
        for record in self.records:
            by_table.setdefault(record.table, ([], []))[1].append(record)
        return by_table
