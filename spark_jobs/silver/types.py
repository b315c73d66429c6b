"""Spark types of the sources' columns, and the expressions that turn a record's JSON values into them.

Guarantees that nothing is rounded or lost: a value that its type cannot hold fails the table's load by its place in Kafka
and its column. What has no Spark type of its own stays the database's text.

Tables whose stored rows cannot become what the source's schema is now: the error, and the remedy that it names.
"""

import shlex
from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.schema import Column as SourceColumn
from spark_jobs.errors import Misfit, corrupt

_LARGEST_PRECISION = 38
#: What `numeric` holds that no decimal does.
NOT_A_NUMBER = "NaN"
_PLAIN: dict[str, T.DataType] = {
    "int2": T.ShortType(),
    "int4": T.IntegerType(),
    "int8": T.LongType(),
    "oid": T.LongType(),
    "float4": T.FloatType(),
    "float8": T.DoubleType(),
    "bool": T.BooleanType(),
    "date": T.DateType(),
    "timestamp": T.TimestampNTZType(),
    "timestamptz": T.TimestampType(),
    "bytea": T.BinaryType(),
    # MariaDB's and MySQL's, which are in upper case.
    "TINYINT": T.ShortType(),
    "TINYINT UNSIGNED": T.ShortType(),
    "SMALLINT": T.ShortType(),
    "SMALLINT UNSIGNED": T.IntegerType(),
    "MEDIUMINT": T.IntegerType(),
    "MEDIUMINT UNSIGNED": T.IntegerType(),
    "INT": T.IntegerType(),
    "INT UNSIGNED": T.LongType(),
    "BIGINT": T.LongType(),
    "BIGINT UNSIGNED": T.DecimalType(20, 0),
    "YEAR": T.ShortType(),
    "FLOAT": T.FloatType(),
    "DOUBLE": T.DoubleType(),
    "DATE": T.DateType(),
    "DATETIME": T.TimestampNTZType(),
    "TIMESTAMP": T.TimestampType(),
    **dict.fromkeys(("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "GEOMETRY"), T.BinaryType()),
}
_INTEGERS = (T.ShortType(), T.IntegerType(), T.LongType())
#: The field that a value gets which its structure cannot hold, and how values are parsed: texts of any length.
CORRUPT = "_corrupt_record"
JSON_OPTIONS = {"columnNameOfCorruptRecord": CORRUPT, "maxStringLen": "2147483647"}
#: Types whose JSON text is the same for equal values, whatever the column's declaration was at the time.
_CANONICAL = {
    "int2", "int4", "int8", "oid", "bool", "date", "text", "varchar", "uuid",
    "TINYINT", "TINYINT UNSIGNED", "SMALLINT", "SMALLINT UNSIGNED", "MEDIUMINT", "MEDIUMINT UNSIGNED", "INT", "INT UNSIGNED",
    "BIGINT", "BIGINT UNSIGNED", "DATE", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "UUID",
}  # fmt: skip
#: Times beyond every other: the extremes of Spark's own types, which sort as the database's do.
_FOREVER = 9_223_372_036_854_775_807
_FOREVER_DAYS = 2_147_483_647


def of(column: SourceColumn) -> T.DataType:
    """Return the type that silver stores a source's column in."""
    if column.type_name in {"numeric", "DECIMAL"} and column.length is not None:
        scale = column.scale or 0
        precision = max(column.length, scale)
        return T.DecimalType(precision, scale) if scale >= 0 and precision <= _LARGEST_PRECISION else T.StringType()
    return _PLAIN.get(column.type_name, T.StringType())


def canonical(column: SourceColumn) -> bool:
    """Whether equal values of the column always have equal JSON text."""
    return column.type_name in _CANONICAL


def wider(first: T.DataType, other: T.DataType) -> T.DataType | None:
    """Return the type that holds every value of both and that Delta can widen to, or None when there is none."""
    if first == other:
        return first
    if first in _INTEGERS and other in _INTEGERS:
        return max(first, other, key=_INTEGERS.index)
    if isinstance(first, T.DecimalType) and isinstance(other, T.DecimalType):
        scale = max(first.scale, other.scale)
        precision = max(first.precision - first.scale, other.precision - other.scale) + scale
        return T.DecimalType(precision, scale) if precision <= _LARGEST_PRECISION else None
    if {type(first), type(other)} == {T.FloatType, T.DoubleType}:
        return T.DoubleType()
    return None


def read_as(stored: T.DataType) -> T.DataType:
    """Return the type to parse a JSON value as: text where Spark's own conversion would lose what it cannot hold."""
    as_text = (T.DecimalType, T.DateType, T.TimestampType, T.TimestampNTZType)
    return T.StringType() if isinstance(stored, as_text) else stored


def value(parsed: Column, stored: T.DataType, name: str, *, nan: bool = False, unsupported: bool = False) -> Column:
    """Return a parsed value in its stored type; fail at one that the type cannot hold, or where that is `unsupported`, be null.

    `nan`: a decimal that is NaN is null, and listed in the row's column target_schema.NAN.
    """
    if read_as(stored) == stored:
        return parsed
    given = parsed.isNotNull()
    if isinstance(stored, T.DecimalType):
        if nan:
            given &= parsed != NOT_A_NUMBER
        converted = parsed.try_cast(stored)
    elif isinstance(stored, T.DateType):
        # Spark's own conversion ends at the space, so a year before year 1 would be taken for one after it.
        usual = F.when(~parsed.endswith(" BC"), parsed.try_cast(stored))
        converted = F.coalesce(usual, _unusual(parsed, stored, _days))
    else:
        converted = F.coalesce(parsed.try_cast(stored), _unusual(parsed, stored, _micros))
    return converted if unsupported else F.when(given, F.coalesce(converted, corrupt(name).cast(stored)))


def widened_from_single(value: Column, stored: T.DataType) -> Column:
    """Return a value that its source declared with single precision: as a double it is the single that its text means."""
    return value.cast("float").cast(stored) if isinstance(stored, T.DoubleType) else value


def _unusual(text: Column, stored: T.DataType, extreme: Callable[[int], Column]) -> Column:
    """Return the value of the database's own texts: infinity, and years before year 1."""
    year = F.substring_index(text, "-", 1)
    astronomical = 1 - year.try_cast("int")
    before = F.concat(
        F.when(astronomical < 0, "-").otherwise(""),
        F.lpad(F.abs(astronomical).cast("string"), 4, "0"),
        F.replace(text.substr(F.length(year) + 1, F.length(text)), F.lit(" BC"), F.lit("")),
    )
    return (
        F.when(text == "infinity", extreme(1).cast(stored))
        .when(text == "-infinity", extreme(-1).cast(stored))
        .when(text.endswith(" BC"), before.try_cast(stored))
    )


def _days(sign: int) -> Column:
    return F.date_from_unix_date(F.lit(sign * _FOREVER_DAYS))


def _micros(sign: int) -> Column:
    return F.timestamp_micros(F.lit(sign * _FOREVER))


class Incompatible(Misfit):
    """A table's stored rows, or earlier records, do not fit its present schema: it needs a new copy and a rebuild."""


def incompatible(table: str, problem: str) -> Incompatible:
    """Return the error for a table that has to be rebuilt."""
    # For a shell: a name is whatever the owner of a table made it.
    word = shlex.quote(table)
    return Incompatible(
        f"{table}: {problem}",
        hint=f"Copy the table again at each source that changed it ('headrace edge snapshot {word} --replace'), load the stream "
        f"when the copy is complete, then run 'headrace lake rebuild STREAM {word} --config FILE': silver is built from that "
        'copy, and the former rows are kept in a folder of their own. on_incompatible = "rebuild" in the lake\'s file does it '
        "in the load that finds the copy.",
    )


def retyped(table: str, name: str, old: str, new: str) -> Incompatible:
    """Return the error for a column whose new type cannot hold its old values, or differs between sources."""
    return incompatible(table, f"column {name} is {old} here and {new} there, and neither holds the other's values")


def rekeyed(table: str, old: str, new: str, missing: str) -> Incompatible:
    """Return the error for a key whose columns rows from before do not have."""
    return incompatible(
        table,
        f"its key was {old} and is {new} now, and rows from before have no value of {missing}: they could not be found",
    )


def recased(table: str, name: str, stored: str) -> Incompatible:
    """Return the error for a column whose name in silver changed, since one that differs by case alone came or went."""
    return incompatible(table, f"column {name} may be stored as {stored}: one that differs by case alone came or went")
