"""The history of a table that was renamed at its sources: versions by its present name and by its former ones, as one.

Each name keeps a history of its own, as it was recorded; nothing is written for this. A version that was current by a former name
ends at the first version of its row by a later one, if that is of before the rename: of the copy. A row without was
deleted before it could be copied, and ends where its source begins by that name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.lake.table import find_stored
from headrace.schema import TableSchema
from spark_jobs.silver import types
from spark_jobs.silver.scd2 import END, FROM, START, UPTO
from spark_jobs.silver.target_schema import SOURCE
from spark_jobs.state.published import Table
from spark_jobs.state.published_rows import Begin
from spark_jobs.storage import name as _q
from spark_jobs.storage import text as _text


@dataclass(frozen=True, kw_only=True)
class NamedHistory:
    """The history that was recorded by one of a table's names."""

    #: The statement's own word for its table: a name in SQL, or a path and version.
    place: str
    #: Names and types of its columns, in their order.
    columns: tuple[tuple[str, T.DataType], ...]
    #: Its key columns among them.
    key: tuple[str, ...]
    #: Positions of its sources when it was renamed: a row that is there by a later name by then goes on.
    upto: Mapping[str, str]
    #: Where the next name begins, by source: a row without a version there was deleted before it could be copied.
    begins: Mapping[str, Begin]

    def find(self, name: str) -> tuple[str, T.DataType] | None:
        """Return a column by the name that a later history gives it, in any case, as SQL has it."""
        return next((column for column in self.columns if column[0].casefold() == name.casefold()), None)


def of(table: Table, place: str, schema: T.StructType, begins: Mapping[str, Begin] | None = None) -> NamedHistory:
    """Return the history of a table as published, which has a schema; `begins` is where its next name begins, by source."""
    columns = next((key for text in table.schemas.values() if (key := TableSchema.parse(text).key)), [])
    stored = tuple(find_stored(name, schema.names) for name in columns)
    kinds = tuple((field.name, field.dataType) for field in schema.fields)
    return NamedHistory(place=place, columns=kinds, key=stored, upto=table.positions, begins=begins or {})


def have_same_rows(former: NamedHistory, later: NamedHistory) -> bool:
    """Whether rows can be followed from one to the other: their keys have the same columns, of types with the same values."""
    if not later.key or {name.casefold() for name in former.key} != {name.casefold() for name in later.key}:
        return False
    pairs = ((former.find(name), later.find(name)) for name in later.key)
    return all(one and other and types.wider(one[1], other[1]) is not None for one, other in pairs)


def find_misfits(former: NamedHistory, present: NamedHistory) -> list[str]:
    """Return the columns whose former values do not fit into the present type: they are null in the history of both."""
    pairs = ((name, former.find(name), kind) for name, kind in present.columns)
    return [name for name, column, kind in pairs if column is not None and types.wider(column[1], kind) is None]


def statement(histories: list[NamedHistory]) -> str:
    """Return the query of all versions; the first history is that of the present name, then former ones, the last name first."""
    columns, parts = _columns(histories), []
    for number, history in enumerate(histories):
        # Of the present name nothing is later.
        following = [each for each in histories[:number] if history.upto and have_same_rows(history, each)]
        ends = _ends(history, follows=bool(following)) if number else {}
        values = ", ".join(f"{ends.get(name) or _value(history, name, kind)} AS {_q(name)}" for name, kind in columns)
        join = _join(history, following) if following else ""
        parts.append(f"SELECT {values} FROM {history.place} v{join}")  # noqa: S608 - names and places are ours, and quoted.
    return " UNION ALL ".join(parts)


def _columns(histories: list[NamedHistory]) -> list[tuple[str, T.DataType]]:
    """Return the columns of the present name and those that former ones alone had, in types that hold all values that fit."""
    columns: dict[str, tuple[str, T.DataType]] = {}
    for history in histories:
        for name, kind in history.columns:
            known = columns.setdefault(name.casefold(), (name, kind))
            columns[name.casefold()] = (known[0], types.wider(known[1], kind) or known[1])
    return list(columns.values())


def _value(history: NamedHistory, name: str, kind: T.DataType) -> str:
    column = history.find(name)
    if column is None or types.wider(column[1], kind) is None:
        return f"CAST(NULL AS {kind.simpleString()})"
    return f"v.{_q(column[0])}" if column[1] == kind else f"CAST(v.{_q(column[0])} AS {kind.simpleString()})"


def _ends(history: NamedHistory, *, follows: bool) -> dict[str, str]:
    """Return the ends of versions: an open one ends at the first one of its row by a later name, or where its source begins."""
    ends = {}
    places = sorted(history.begins.items())
    times = [f"timestamp {_text(str(begin.time))}" if begin.time else "CAST(NULL AS timestamp)" for _, begin in places]
    for own, part, values in ((END, "time", times), (UPTO, "at", [_text(begin.at) for _, begin in places])):
        begins = (f"{_text(source)}, {value}" for (source, _), value in zip(places, values, strict=True))
        of_source = f"map({', '.join(begins)})[v.{SOURCE}]" if history.begins else "NULL"
        of_row = f"WHEN f.first IS NOT NULL THEN f.first.{part} " if follows else ""
        # By positions: a change may have no time.
        ends[own] = f"CASE WHEN v.{UPTO} IS NOT NULL THEN v.{own} {of_row}ELSE {of_source} END"
    return ends


def _join(history: NamedHistory, following: list[NamedHistory]) -> str:
    """Return what gives an open version the first one of its row by a later name."""
    names = [f"k{number}" for number in range(len(history.key))]
    rows = []
    for each in following:
        keys = [column[0] for key in history.key if (column := each.find(key))]
        chosen = ", ".join(f"{_q(key)} AS {name}" for key, name in zip(keys, names, strict=True))
        rows.append(f"SELECT {SOURCE}, {chosen}, {FROM}, {START} FROM {each.place}")  # noqa: S608 - as above.
    of = ", ".join([SOURCE, *names])
    first = f"min(struct({FROM} AS at, {START} AS time)) AS first"
    firsts = f"(SELECT {of}, {first} FROM ({' UNION ALL '.join(rows)}) GROUP BY {of})"  # noqa: S608 - as above.
    same = [f"v.{SOURCE} = f.{SOURCE}", *(f"v.{_q(key)} = f.{k}" for key, k in zip(history.key, names, strict=True))]
    upto = ", ".join(f"{_text(source)}, {_text(position)}" for source, position in sorted(history.upto.items()))
    return (
        f" LEFT JOIN {firsts} f ON v.{UPTO} IS NULL AND {' AND '.join(same)} AND f.first.at <= map({upto})[v.{SOURCE}]"
    )
