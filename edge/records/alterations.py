"""What an alteration of a table did to rows that are in no log, as far as two descriptions of the table and the catalog show.

Renaming a column or a table, adding a column with a default, or changing a type changes what existing rows are, without a record
for them. No I/O. Called by edge/snapshot/table_history.py.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

#: Types whose values stay the same where the next one takes their place.
_WIDER = (
    ("int2", "int4", "int8"),
    ("float4", "float8"),
    ("varchar", "text"),
)
#: Types whose declared length, precision or scale may grow without a change of their values.
_NARROWS = frozenset({"varchar", "varbit", "time", "timetz", "timestamp", "timestamptz", "interval"})
#: Of MariaDB and MySQL, whose names are in upper case: types, and those that take all their values unchanged, or refuse them.
_INTEGERS = frozenset(
    f"{name}{sign}" for name in ("TINYINT", "SMALLINT", "MEDIUMINT", "INT", "BIGINT") for sign in ("", " UNSIGNED")
)
_TEXTS = frozenset({"VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT"})
_BLOBS = frozenset({"VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB"})
_HOLDS = (
    (_INTEGERS | {"YEAR"}, _INTEGERS | {"DECIMAL"}),
    (_TEXTS | {"CHAR", "ENUM", "SET"}, _TEXTS),
    (_BLOBS | {"BINARY"}, _BLOBS),
    (frozenset({"DATETIME"}), frozenset({"TIMESTAMP"})),
)


class KnownColumn(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A column as the log announces it."""

    name: str
    type: str
    length: int | None = None
    scale: int | None = None
    #: The database's own number of the column, which does not change with its name; None where there is none, or it is not known.
    number: int | None = None
    #: The database's own number of its type, which does not change with the type's name; None where there is none, or it is not
    #: known.
    type_number: int | None = None

    @property
    def shown(self) -> tuple[str, str, int | None, int | None]:
        """All that the log has of it."""
        return self.name, self.type, self.length, self.scale


class Catalog(NamedTuple):
    """What the database's catalog has of a table's columns now, by name."""

    numbers: Mapping[str, int]
    #: Whether rows that are there when the column is added have a value in it.
    filled: Mapping[str, bool]
    #: The highest number that a column has, or had; 0 where columns have no numbers.
    newest: int = 0
    #: Columns that are NOT NULL.
    required: frozenset[str] = frozenset()


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the server publishes of which tables, as far as alterations of it show."""

    #: Of which kinds of changes, and how.
    kinds: str
    #: By `schema.table`: of a table that is listed its columns and row filter, with the number of the listing.
    tables: dict[str, str]
    #: By `schema.table`: of a table whose partitions arrive under its name, the numbers of these, with `+` where one had rows
    #: before it became a partition, and behind `:` each one's file now, and the file with which it was last seen to be emptied.
    partitions: dict[str, str]


class TableDescription(NamedTuple):
    """A table as the log describes it now."""

    #: What stays the same where the table is renamed, if the engine has that: PostgreSQL's OID; else its name.
    identity: str
    #: `schema.table`.
    name: str
    columns: Sequence[KnownColumn]
    #: Checksum of the schema by which its records are read.
    schema: str
    #: Queries the catalog for the columns; None where it describes another table by now.
    catalog: Callable[[], Catalog | None]
    #: Names of columns that the edge's policy leaves out.
    left_out: Sequence[str] = ()
    #: Whether the schema depends on the catalog as it is now: the same log, read again, may have another one then.
    depends_on_catalog: bool = False


class Announcement(NamedTuple):
    """What the schema record of a table needs."""

    #: Why existing rows changed, for the record; None for nothing to report.
    rewritten: list[str] | None
    #: Place up to which each change of the table carries its schema record; 0 for none.
    repeats_until: int


def alterations(
    old: Sequence[KnownColumn],
    new: Sequence[KnownColumn],
    catalog: Catalog | None,
    *,
    types: bool,
    newest: int = 0,
    left_out: Collection[str] = (),
) -> list[str] | None:
    """Return why existing rows changed, nothing where they did not; None where that is not known.

    `types`: whether every change of a type is a reason. Of an engine that refuses values that do not fit only one that rounds is.
    `newest` and `left_out` are those of the old description; a column that was there then may be new to the records alone.
    """
    renamed = _find_renamed(old, new)
    before = {column.name: column for column in old}
    reasons = [f"column {was} was renamed to {name}" for name, was in renamed.items()]
    is_known = True
    for column in new:
        former = before.get(renamed.get(column.name, column.name))
        if former is None or (former.name == column.name and former.name in renamed.values()):
            filled = catalog.filled.get(column.name) if catalog is not None else None
            if column.name in left_out:
                reasons.append(f"column {column.name} was left out before")
            elif filled:
                reasons.append(f"column {column.name} was added with a default")
            is_known = is_known and filled is not None and (column.number is None or 0 < newest < column.number)
        elif None not in (former.number, column.number) and former.number != column.number:
            reasons.append(f"column {column.name} was dropped and added again")
        elif not _keeps(former, column):
            if types or _rounds(former, column):
                reasons.append(f"the type of column {column.name} was changed")
            is_known = False
    return reasons if reasons or is_known else None


def _find_renamed(old: Sequence[KnownColumn], new: Sequence[KnownColumn]) -> dict[str, str]:
    """Return the former name of each column that has another one now."""
    if all(column.number is not None for column in (*old, *new)):
        names = {column.number: column.name for column in old}
        return {
            column.name: names[column.number]
            for column in new
            if column.number in names and names[column.number] != column.name
        }
    # By place and type, as a column that is renamed keeps both.
    former, present = {column.name for column in old}, {column.name for column in new}
    return {
        column.name: was.name
        for was, column in zip(old, new, strict=False)
        if was.name not in present and column.name not in former and was.shown[1:] == column.shown[1:]
    }


def _keeps(old: KnownColumn, new: KnownColumn) -> bool:
    """Return whether values of a column are the same in its new type."""
    if old.shown[1:] == new.shown[1:]:
        return True
    if None not in (old.type_number, new.type_number) and old.type_number == new.type_number and old.type != new.type:
        # The type itself was renamed.
        old = msgspec.structs.replace(old, type=new.type)
        return old.shown[1:] == new.shown[1:]
    if old.type != new.type:
        wider: Callable[[tuple[str, ...]], bool] = lambda row: (  # noqa: E731 - one condition, used once.
            old.type in row and new.type in row and row.index(old.type) < row.index(new.type)
        )
        return any(map(wider, _WIDER)) and new.length is None
    if old.type == "numeric":
        return new.length is None or (old.length is not None and new.length >= old.length and new.scale == old.scale)
    if old.type in _NARROWS:
        return new.length is None or (old.length is not None and new.length >= old.length)
    return False


def _rounds(old: KnownColumn, new: KnownColumn) -> bool:
    """Return whether MariaDB and MySQL, which refuse what does not fit, make other values of a column's in its new type."""
    if old.type == "DECIMAL" == new.type:
        return (new.scale or 0) < (old.scale or 0)
    if old.type != new.type and not any(
        old.type in contained and new.type in containing for contained, containing in _HOLDS
    ):
        return old.type.isupper()
    # Digits of a second.
    return new.type in {"TIME", "DATETIME", "TIMESTAMP"} and (new.length or 0) < (old.length or 0)
