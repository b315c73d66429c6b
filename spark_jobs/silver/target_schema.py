"""A silver table's columns and key, from the schema records of all its sources and of every age in the range to load.

Guarantees that every record of the range can be read by the shape, or raises Misfit for this table alone.

Which name a column has in silver: the source's own, unless SQL could not distinguish it from another one.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.lake.table import add_suffix, is_mapped, open_name
from headrace.schema import Column, TableSchema
from spark_jobs.errors import Misfit
from spark_jobs.silver import schema_versions, types
from spark_jobs.silver.schema_versions import Span
from spark_jobs.silver.types import recased, rekeyed, retyped

#: Names of columns that silver adds, or that a load adds while it works.
RESERVED = frozenset(
    {"_source", "_position", "_commit_time", "_deleted_at", "_nan"}
    | {"_op", "_key", "_old_key", "_unchanged", "_seed", "_moved", "_rank", "_taken"}
)
#: Column of a change that takes a row of a table without a key: the position of the stored row that it takes.
TAKEN = "_taken"


def choose_names(names: Iterable[str], *, open_names: bool = False) -> dict[str, str]:
    """Return silver's name of each of a table's columns that cannot have its own one, by the source's name.

    With `open_names` so do those that Parquet does not take.
    """
    distinct = set(names)
    of_fold = Counter(map(fold, distinct))
    replacements = {
        name: add_suffix(name)
        for name in sorted(distinct)
        if fold(name) in RESERVED or (of_fold[fold(name)] > 1 and name != fold(name))
    }
    if not open_names:
        return replacements
    return replacements | {name: open_name(name) for name in sorted(distinct) if is_mapped(name)}


def find_former(name: str, columns: Collection[str], stored_names: Mapping[str, str]) -> str | None:
    """Return the stored column that may hold a source's column under another name than its present one; None when there is none.

    `columns` are the table's now, by their names in silver; `stored_names` has the stored columns by their folded names.
    """
    candidates = (stored_names.get(fold(name)), stored_names.get(fold(add_suffix(name))))
    return next((candidate for candidate in candidates if candidate is not None and candidate not in columns), None)


def fold(name: str) -> str:
    """Return the form that names have in common between which Spark does not distinguish."""
    # Java compares characters in upper case and in lower case.
    return name.upper().casefold()


SOURCE, POSITION, COMMIT_TIME = "_source", "_position", "_commit_time"
#: Names of a row's decimal columns that are NaN at the source, and so null here; null when there are none.
NAN = "_nan"
OWN = (SOURCE, POSITION, COMMIT_TIME)
#: When a row was deleted at its source; null while it lives. Only where deleted rows stay.
DELETED_AT = "_deleted_at"


@dataclass(frozen=True)
class TargetSchema:
    """What a table looks like in silver."""

    #: The source's `schema.table`.
    table: str
    #: Key columns in key order; empty for a table without a key.
    key: tuple[str, ...]
    #: The table's own columns in order, with the types that silver stores.
    columns: dict[str, T.DataType]
    #: Whether equal keys always have equal text in the records.
    canonical_key: bool
    #: Whether deleted rows stay, marked.
    soft: bool = False
    #: Whether a value that its type cannot hold is null, but for keys: without one a row cannot be found again.
    nulls_unsupported: bool = False
    #: Key columns of the schemas that others replaced in the range, where they differ from the key.
    former_keys: tuple[tuple[str, ...], ...] = ()
    #: The source's names of columns that have another one in silver, by the latter; all other members have silver's names.
    source_names: Mapping[str, str] = field(default_factory=dict)
    #: Where the source declared a column with single precision, by the source's name.
    single_precision: Mapping[str, Sequence[Span]] = field(default_factory=dict)
    #: The columns by which rows without a key are compared: those that the latest schemas have.
    compared: tuple[str, ...] = ()
    #: Where the edge wrote a column in one of Debezium's forms, by the source's name.
    forms: Mapping[str, Sequence[tuple[Span, schema_versions.Form]]] = field(default_factory=dict)

    def at_source(self, name: str) -> str:
        """Return the source's name of a column."""
        return self.source_names.get(name, name)

    @property
    def own(self) -> tuple[str, ...]:
        """Return the columns that silver adds to the table's own."""
        return (*OWN, DELETED_AT) if self.soft else OWN


def of(
    table: str, latest: Sequence[TableSchema], earlier: Sequence[TableSchema] = (), *, open_names: bool = False
) -> TargetSchema:
    """Return the shape that holds the latest schema of each source, and every earlier one of the range.

    With `open_names` no column has a name for which a new table would map its names.
    """
    if not latest:
        raise Misfit(
            f"{table}: no schema record goes ahead of its changes",
            hint="The edge writes one ahead of a table's first change. If retention took it, restart the edge and change a row.",
        )
    names = choose_names((c.name for schema in (*latest, *earlier) for c in schema.columns), open_names=open_names)
    if names:
        latest, earlier = ([_renamed(schema, names) for schema in schemas] for schemas in (latest, earlier))
    keys = {tuple(schema.key) for schema in latest}
    former = {tuple(schema.key) for schema in earlier} - keys
    if len(keys) > 1 or (keys == {()} and former):
        raise Misfit(
            f"{table}: its key differs between sources, or was dropped: {' and '.join(sorted(map(format_key, keys | former)))}",
            hint="Give the table the same key in every source of the stream: the next load then continues with it.",
        )
    (key,) = keys
    for schema in earlier:
        if missing := [name for name in key if name not in {column.name for column in schema.columns}]:
            raise rekeyed(table, format_key(tuple(schema.key)), format_key(key), ", ".join(missing))
    columns: dict[str, T.DataType] = {}
    # In the order in which they appeared, as loads that read each schema on its own would add them.
    for schema in (*earlier, *latest):
        for column in schema.columns:
            if not schema_versions.is_readable(column):
                raise _formed(table, column)
            columns[column.name] = _common(table, column.name, columns.get(column.name), types.of(column))
    if any(
        _may_be_nan(column, columns)
        for schema in (*latest, *earlier)
        for column in schema.columns
        if column.name not in key
    ):
        columns[NAN] = T.ArrayType(T.StringType())
    same_text = schema_versions.FORM_NAMES
    present = {column.name for schema in latest for column in schema.columns}
    # Under another key the records' own keys do not have this one: it is read from the rows.
    canonical = not former and all(
        types.canonical(column) and column.form in {None, *same_text}
        for schema in (*latest, *earlier)
        for column in schema.columns
        if column.name in key
    )
    return TargetSchema(
        table=table,
        key=key,
        columns=columns,
        canonical_key=canonical,
        former_keys=tuple(sorted(former)),
        compared=tuple(name for name in columns if name in {NAN, *present}),
        source_names={stored: name for name, stored in names.items()},
    )


def fit_types(target: TargetSchema, stored: Mapping[str, T.DataType]) -> TargetSchema:
    """Return the schema in the types that hold a table's stored values too; raise Incompatible when a column has none.

    Also when a column may be stored under another name, since one that differs by case alone came or went.
    """
    target = as_stored(target, stored)
    stored_names = {fold(name): name for name in stored if name not in RESERVED}
    for name in target.columns.keys() - stored.keys():
        if other := find_former(target.at_source(name), target.columns, stored_names):
            raise recased(target.table, target.at_source(name), other)
    columns = {name: _common(target.table, name, stored.get(name), kind) for name, kind in target.columns.items()}
    return replace(target, columns=columns)


def as_stored(target: TargetSchema, stored: Collection[str]) -> TargetSchema:
    """Return the schema with the names of a table's columns, where it maps names and a new one would not, or the reverse."""
    mapped = choose_names(map(target.at_source, target.columns))
    names: dict[str, str] = {}
    for name in target.columns:
        source = target.at_source(name)
        other = mapped.get(source, source) if name == open_name(source) else open_name(source)
        if is_mapped(source) and name not in stored and other in stored:
            names[name] = other

    def named(key: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in key)

    sources = {names.get(name, name): target.at_source(name) for name in target.columns}
    return replace(
        target,
        key=named(target.key),
        compared=named(target.compared),
        former_keys=tuple(map(named, target.former_keys)),
        columns={names.get(name, name): kind for name, kind in target.columns.items()},
        source_names={name: source for name, source in sources.items() if name != source},
    )


def _common(table: str, name: str, old: T.DataType | None, new: T.DataType) -> T.DataType:
    common = types.wider(old, new) if old is not None else new
    if common is None:
        raise retyped(table, name, str(old and old.simpleString()), new.simpleString())
    return common


def _may_be_nan(column: Column, columns: dict[str, T.DataType]) -> bool:
    return column.type_name == "numeric" and isinstance(columns[column.name], T.DecimalType)


def _formed(table: str, column: Column) -> Misfit:
    return Misfit(
        f"{table}: the edge writes column {column.name} in Debezium's form {str(column.form)[:100]}, which silver does not read",
        hint="From this form the source's value cannot be made again. In the edge's file, set the one of [records] decimal, "
        "time, binary, interval, hstore and types that this type depends on as profile = 'headrace' has it; the others can stay. "
        "Rows written so stay readable in bronze alone.",
    )


def _renamed(schema: TableSchema, names: Mapping[str, str]) -> TableSchema:
    """Return a schema with silver's names of its columns."""
    columns = [msgspec.structs.replace(column, name=names.get(column.name, column.name)) for column in schema.columns]
    return msgspec.structs.replace(schema, columns=columns, key=[names.get(name, name) for name in schema.key])


def format_key(key: tuple[str, ...]) -> str:
    """Return a key as messages name it."""
    return f"({', '.join(key)})" if key else "none"
