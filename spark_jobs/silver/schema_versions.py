"""Which schema was in force at which position of each source, in a table's range of changes, and the form that it gives to
values.

A record is read with the schema in force at its position, so a table does not depend on where loads cut the log. A change of the
key ends a step: the changes before it are applied by the key that they were written with. Called by table_load.py.

Of columns that an edge writes in Debezium's forms (`form` in a schema record) a value becomes its type's ordinary text. Only
forms from which the source's value can be made again are read: `is_readable`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.errors import CorruptInput
from headrace.schema import Column as SourceColumn
from headrace.schema import TableSchema
from spark_jobs.silver import types

_DATA, _TIME, _KAFKA = "io.debezium.data.", "io.debezium.time.", "org.apache.kafka.connect.data."
#: Forms that are a name alone.
FORM_NAMES = frozenset({
    *(f"{_DATA}{name}" for name in ("Uuid", "Json", "Xml", "Tsvector", "Ltree", "Enum", "EnumSet")), f"{_TIME}Year",
})  # fmt: skip
_DECIMAL, _VARIABLE, _BOOLEAN = f"{_KAFKA}Decimal", f"{_DATA}VariableScaleDecimal", "boolean"
_DATES = (f"{_TIME}Date", f"{_KAFKA}Date")
_ISO = tuple(f"{_TIME}{name}" for name in ("IsoDate", "IsoTime", "IsoTimestamp"))
_ZONED = f"{_TIME}ZonedTimestamp"
#: How many of them are a microsecond, or how many microseconds one is.
_CLOCKS = {f"{_TIME}MicroTime": 1, f"{_TIME}Time": 1000, f"{_TIME}NanoTime": -1000}
_TIMESTAMPS = {f"{_TIME}MicroTimestamp": 1, f"{_TIME}Timestamp": 1000, f"{_TIME}NanoTimestamp": -1000}
#: Those that are in milliseconds, whatever the column declares.
_CONNECT = {f"{_KAFKA}Time": f"{_TIME}Time", f"{_KAFKA}Timestamp": f"{_TIME}Timestamp"}
_ARRAYS = frozenset(
    f"array<{element}>"
    for element in ("int16", "int32", "int64", "string", "boolean", f"{_DATA}Uuid", f"{_DATA}Json", f"{_DATA}Ltree")
)
_MILLISECOND_DIGITS = 3
#: Digits of 16 bytes, which hold the 38 digits of Spark's decimals.
_HEX_DIGITS, _TWO_TO_64 = 32, "18446744073709551616"
#: Digits of a product's lower part.
_SPLIT = 13
#: Elements of arrays that the database prints in quotes.
_QUOTED = r'(?i)^$|^null$|[{},"\\\s]'
#: What is infinity in each form, that of the past second.
_INFINITE_DAYS = (-2_147_472_692, -2_147_472_691)
_INFINITE_MICROS = (9_223_372_036_825_200_000, -9_223_372_036_832_400_000)
_INFINITE_NANOS = (9_223_372_036_854_775_807, -9_223_372_036_854_775_808)
_INFINITE_TEXTS = {
    f"{_TIME}IsoDate": ("-5877611-06-21", "-5877611-06-22"),
    f"{_TIME}IsoTimestamp": ("+294247-01-10T04:00:25.2", "-290308-12-21T19:59:27.6"),
}


class Form(NamedTuple):
    """How a column is written."""

    name: str
    #: The scale of a decimal.
    scale: int = 0
    #: Digits of a second, which a TIME of MariaDB and MySQL has always; None for others, which have no zeros at their end.
    digits: int | None = None


def form_of(column: SourceColumn) -> Form | None:
    """Return the form to read a column by; None where its values are ordinary text."""
    if column.form is None or column.form in {_ZONED, *FORM_NAMES}:
        return None
    digits = column.length or 0 if column.type_name == "TIME" else None
    return Form(_CONNECT.get(column.form, column.form), column.scale or 0, digits)


def is_readable(column: SourceColumn) -> bool:
    """Whether the source's values can be made again of a column's."""
    form, kind = column.form, column.type_name
    if form is None or form in {*_DATES, *_ISO, *_CLOCKS, *_TIMESTAMPS, _ZONED, _VARIABLE, *_ARRAYS}:
        return True
    if form in FORM_NAMES:
        return kind != "hstore"
    if form in _CONNECT:
        return column.length is not None and column.length <= _MILLISECOND_DIGITS
    if form == _DECIMAL:
        return kind in {"numeric", "DECIMAL"} and isinstance(types.of(column), T.DecimalType)
    return form == _BOOLEAN and kind in {"bit", "varbit", "BIT"}


def form_text(value: Column, form: Form) -> Column:
    """Return a parsed value, as text, in the ordinary form; null where it is no value of this form."""
    name = form.name
    if name in {*_DATES, *_TIMESTAMPS, *_CLOCKS, *_ISO}:
        return _temporal(value, form)
    if name == _DECIMAL:
        return _decimal(value, F.lit(form.scale))
    if name == _VARIABLE:
        return _decimal(F.get_json_object(value, "$.value"), F.get_json_object(value, "$.scale").try_cast("int"))
    if name == _BOOLEAN:
        return F.when(value == "true", "1").when(value == "false", "0")
    return _array(value, is_boolean=name == "array<boolean>")


def _temporal(value: Column, form: Form) -> Column:
    name = form.name
    if name in _DATES:
        return _days(value.try_cast("int"))
    if name in _TIMESTAMPS:
        return _moment(value.try_cast("bigint"), name)
    if name in _CLOCKS:
        return _clock(_in_micros(value.try_cast("bigint"), _CLOCKS[name]), form.digits)
    local = F.rtrim(value, F.lit("Z"))
    return _infinite(local, _INFINITE_TEXTS.get(name, ("", "")), local)


def _days(days: Column) -> Column:
    return _infinite(days, _INFINITE_DAYS, F.date_from_unix_date(days).cast("string"))


def _moment(number: Column, name: str) -> Column:
    unit = _TIMESTAMPS[name]
    ends = _INFINITE_NANOS if unit < 0 else tuple(end // unit for end in _INFINITE_MICROS)
    local = F.timestamp_micros(_in_micros(number, unit)).cast("timestamp_ntz").cast("string")
    return _infinite(number, ends, local)


def _infinite(value: Column, ends: tuple[object, ...], otherwise: Column) -> Column:
    """Return infinity for the values that mean it."""
    return F.when(value == F.lit(ends[0]), "infinity").when(value == F.lit(ends[1]), "-infinity").otherwise(otherwise)


def _in_micros(number: Column, unit: int) -> Column:
    return number * unit if unit > 0 else F.call_function("div", number, F.lit(-unit))


def _clock(micros: Column, digits: int | None) -> Column:
    """Return a time as the database prints it; those of MariaDB and MySQL may be negative, or longer than a day."""
    size = F.abs(micros)
    seconds, fraction = F.floor(size / 1_000_000), size % 1_000_000
    shown = F.format_string("%02d:%02d:%02d", F.floor(seconds / 3600), F.floor(seconds / 60) % 60, seconds % 60)
    shown = F.concat(F.when(micros < 0, "-").otherwise(""), shown)
    part = F.lpad(fraction.cast("string"), 6, "0")
    if digits is not None:
        return F.concat(shown, F.lit("."), part.substr(1, digits)) if digits else shown
    return F.when(fraction == 0, shown).otherwise(F.concat(shown, F.lit("."), F.rtrim(part, F.lit("0"))))


def _decimal(value: Column, scale: Column) -> Column:
    """Return the number whose unscaled bytes, big-endian in two's complement, are in base64; null beyond 38 digits."""
    hexadecimal = F.hex(F.unbase64(value))
    sign = F.when(hexadecimal.substr(1, 1).isin(*"89ABCDEF"), "F").otherwise("0")
    padded = F.lpad(hexadecimal, _HEX_DIGITS, sign)
    high = F.conv(padded.substr(1, 16), 16, -10).cast("bigint")
    low = F.conv(padded.substr(17, 16), 16, 10).cast("decimal(20,0)")
    # Both of the number's own sign, so that neither has more digits than the number.
    step, is_negative = F.lit(_TWO_TO_64).cast("decimal(20,0)"), high < 0
    high, low = F.when(is_negative, high + 1).otherwise(high), F.when(is_negative, low - step).otherwise(low)
    # Spark rounds products to 34 digits, sums not at all.
    upper, lower = F.call_function("div", high, F.lit(10**_SPLIT)), high % F.lit(10**_SPLIT)
    upper, lower = (part.cast("decimal(14,0)") * step for part in (upper, lower))
    shifted = F.concat(upper.cast("string"), F.lit("0" * _SPLIT)).try_cast("decimal(38,0)")
    whole = F.try_add(F.try_add(shifted, lower), low)
    # Not its absolute value, which Spark rounds to 34 digits, too.
    signed = whole.cast("string")
    digits = F.ltrim(signed, F.lit("-"))
    digits = F.lpad(digits, F.greatest(F.length(digits), scale + 1), F.lit("0"))
    before = F.length(digits) - scale
    number = F.when(scale == 0, digits).otherwise(
        F.concat(digits.substr(F.lit(1), before), F.lit("."), digits.substr(before + 1, scale))
    )
    return F.when(
        F.length(hexadecimal) <= _HEX_DIGITS, F.concat(F.when(signed.startswith("-"), "-").otherwise(""), number)
    )


def _array(value: Column, *, is_boolean: bool) -> Column:
    """Return an array of one dimension as the database prints it."""
    elements = F.from_json(value, "array<string>")

    def shown(element: Column) -> Column:
        if is_boolean:
            return F.substring(element, 1, 1)
        escaped = F.regexp_replace(element, r'(["\\])', r"\\$1")
        quoted = F.concat(F.lit('"'), escaped, F.lit('"'))
        return F.when(element.rlike(_QUOTED), quoted).otherwise(element)

    listed = F.transform(elements, lambda element: F.when(element.isNull(), "NULL").otherwise(shown(element)))
    return F.when(~value.startswith("[["), F.concat(F.lit("{"), F.array_join(listed, ","), F.lit("}")))


@dataclass(frozen=True, kw_only=True)
class SchemaRecord:
    """A schema record in a range."""

    source: str
    table: str
    position: str
    value: str
    #: None for a record that is none: its table cannot go on.
    schema: TableSchema | None
    #: Where it is in Kafka, for an error.
    place: str = ""
    #: Which mark of a copy it is: the beginning or the end (headrace/schema.py); None for neither.
    mark: str | None = None

    def read(self) -> TableSchema:
        """Return the schema; raise CorruptInput where the record has none."""
        if self.schema is None:
            raise CorruptInput(
                f"{self.place}: a record without 'op' that is no schema record",
                hint="See what wrote that record. To go on, restart the source's edge and copy the table again: 'headrace edge "
                "snapshot TABLE --replace', then 'headrace lake rebuild'.",
            )
        return self.schema


class Span(NamedTuple):
    """Positions of a source: from one on, or from its first, and before another, or up to its last."""

    source: str
    since: str
    before: str | None

    def condition(self) -> Column:
        """Return the condition that a change of bronze is inside."""
        inside = F.col("source") == self.source
        if self.since:
            inside &= F.col("position") >= self.since
        return inside & (F.col("position") < self.before) if self.before is not None else inside


@dataclass(frozen=True)
class SchemaVersions:
    """Each source's schemas in the order in which they came into force."""

    #: The first position of each schema, empty for the one in force where the range begins, and the schema, by source.
    of: Mapping[str, Sequence[tuple[str, TableSchema]]]

    @classmethod
    def read(
        cls, former: Mapping[str, str], records: Sequence[SchemaRecord], low: Mapping[str, str]
    ) -> "SchemaVersions":
        """Return those of a range: `former` are the schema records in force earlier, `records` come in position order."""
        by_source: dict[str, list[tuple[str, TableSchema]]] = {
            source: [("", TableSchema.parse(text))] for source, text in former.items()
        }
        for record in records:
            versions, schema = by_source.setdefault(record.source, []), record.read()
            if record.position <= low.get(record.source, ""):
                versions[:] = [("", schema)]
            elif not versions or versions[-1][1] != schema:
                versions.append((record.position, schema))
        return cls(by_source)

    def latest(self) -> list[TableSchema]:
        """Return each source's last schema."""
        return [versions[-1][1] for versions in self.of.values()]

    def earlier(self) -> list[TableSchema]:
        """Return the schemas that others replaced in the range."""
        return [schema for versions in self.of.values() for _, schema in versions[:-1]]

    def key_changes(self, *, whole: bool) -> dict[str, list[str]]:
        """Return the positions at which each source's records change from one key to another.

        To a key from none, or the other way round, where the records without a key have `whole` old rows. Otherwise these are
        read by the key that the table has at last.
        """
        return {
            source: [
                since
                for (_, old), (since, new) in pairwise(versions)
                if old.key != new.key and (whole or (old.key and new.key))
            ]
            for source, versions in self.of.items()
        }

    def single_precision(self) -> dict[str, list[Span]]:
        """Return where each column's values were of single precision: their text means another number as a double."""
        by_column: dict[str, list[Span]] = {}
        for source, versions in self.of.items():
            ends = [since for since, _ in versions[1:]]
            for (since, schema), before in zip(versions, [*ends, None], strict=True):
                for column in schema.columns:
                    if types.of(column) == T.FloatType():
                        by_column.setdefault(column.name, []).append(Span(source, since, before))
        return {name: _joined(spans) for name, spans in by_column.items()}

    def forms(self) -> dict[str, list[tuple[Span, Form]]]:
        """Return where each column's values are in one of Debezium's forms."""
        by_column: dict[str, list[tuple[Span, Form]]] = {}
        for source, versions in self.of.items():
            ends = [since for since, _ in versions[1:]]
            for (since, schema), before in zip(versions, [*ends, None], strict=True):
                for column in schema.columns:
                    if (form := form_of(column)) is not None:
                        by_column.setdefault(column.name, []).append((Span(source, since, before), form))
        return by_column


def _joined(spans: list[Span]) -> list[Span]:
    """Return the spans with those that follow each other as one."""
    joined: list[Span] = []
    for span in spans:
        follows = joined and joined[-1].source == span.source and joined[-1].before == span.since
        joined.append(span._replace(since=joined.pop().since) if follows else span)
    return joined
