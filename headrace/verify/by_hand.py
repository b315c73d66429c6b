"""A source's half of a comparison as one statement for each table, for a person to run at a database that `verify` does not
reach: SQL Server, Oracle and Db2, by Debezium. Written by their documentation, and never run there by us.

It gives the number of rows and two sums over their hashes, as silver's half does. A row's text is that of its columns, each of a
fixed form or, for text and bytes, the SHA-256: so all is ASCII. A hash's first 30 digits are added up as two numbers.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from headrace.schema import TableSchema
from headrace.verify.canonical import Column, SilverType, silver_name
from headrace.verify.comparison import DIGITS

# Statements are built from quoted names of schema records, and numbers, nothing else.
# ruff: noqa: S608

_INTEGERS: Final = ("short", "integer", "long")
#: Types, as schema records of such sources have them, of which databases and Debezium print values otherwise.
_PRINTED_OTHERWISE: Final = frozenset({"float4", "float8", "time"})
_MOMENT: Final = "YYYY-MM-DD HH24:MI:SS"
_SPARK_MOMENT: Final = "date_format({0}, 'yyyy-MM-dd HH:mm:ss.SSSSSS')"
_SPARK: Final = {
    **dict.fromkeys((*_INTEGERS, "boolean", "decimal"), "cast({0} as string)"),
    "date": "date_format({0}, 'yyyy-MM-dd')",
    "timestamp": _SPARK_MOMENT,
    "timestamp_ntz": _SPARK_MOMENT,
    "binary": "upper(sha2({0}, 256))",
    "string": "upper(sha2(encode({0}, '{1}'), 256))",
}


class _Engine(NamedTuple):
    """How a database writes it: `{0}` is a column or a text, `{1}` a decimal's scale or format, or where digits begin."""

    quotes: tuple[str, str]
    #: By silver's type; the text's encoding.
    forms: dict[str, str]
    encoding: str
    empty: str
    joined: str
    #: Of a row's text, hexadecimal, and of 15 of its digits.
    hash: str
    number: str
    counted: str = "COUNT(*)"
    #: Of its largest decimal.
    digits: int = 38


def _sql_server_hash(value: str) -> str:
    return f"CONVERT(VARCHAR(64), HASHBYTES('SHA2_256', {value}), 2)"


def _format(digits: int, scale: int) -> str:
    """Return the format of a decimal of so many digits, some of them behind the point."""
    return "9" * (digits - scale - 1) + "0" + f".{'0' * scale}" * bool(scale)


#: The digits as a sum: Db2 has no function that reads them.
_DB2_NUMBER: Final = " + ".join(
    f"INSTR('123456789ABCDEF', SUBSTR({{0}}, {{1}} + {at}, 1)) * DECIMAL({16 ** (DIGITS - 1 - at)}, 31, 0)"
    for at in range(DIGITS)
)
_ENGINES: Final = {
    "sqlserver": _Engine(
        quotes=("[", "]"),
        forms={
            **dict.fromkeys(_INTEGERS, "CONVERT(VARCHAR(20), {0})"),
            "boolean": "CASE {0} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END",
            "decimal": "CONVERT(VARCHAR(45), CAST({0} AS DECIMAL(38, {1})))",
            "date": "CONVERT(CHAR(10), {0}, 23)",
            "timestamp_ntz": "LEFT(CONVERT(CHAR(27), CAST({0} AS DATETIME2(7)), 121), 26)",
            "timestamp": "LEFT(CONVERT(CHAR(27), CAST(SWITCHOFFSET({0}, '+00:00') AS DATETIME2(7)), 121), 26)",
            "binary": _sql_server_hash("CAST({0} AS VARBINARY(MAX))"),
            "string": _sql_server_hash("CAST({0} AS NVARCHAR(MAX))"),
        },
        encoding="UTF-16LE",
        empty="CAST('' AS VARCHAR(MAX))",
        joined=" + ",
        hash=_sql_server_hash("{0}"),
        number="CAST(CONVERT(BIGINT, CONVERT(VARBINARY(8), '0' + SUBSTRING({0}, {1}, 15), 2)) AS DECIMAL(38, 0))",
        counted="COUNT_BIG(*)",
    ),
    "oracle": _Engine(
        quotes=('"', '"'),
        forms={
            **dict.fromkeys(_INTEGERS, "TO_CHAR({0})"),
            "boolean": "CASE {0} WHEN 1 THEN 'true' WHEN 0 THEN 'false' END",
            "decimal": "TO_CHAR({0}, 'FM{1}')",
            "date": "TO_CHAR({0}, 'YYYY-MM-DD')",
            "timestamp_ntz": f"SUBSTR(TO_CHAR(CAST({{0}} AS TIMESTAMP(9)), '{_MOMENT}.FF9'), 1, 26)",
            "timestamp": f"SUBSTR(TO_CHAR(SYS_EXTRACT_UTC(CAST({{0}} AS TIMESTAMP(9) WITH TIME ZONE)), '{_MOMENT}.FF9'), 1, 26)",
            "binary": "RAWTOHEX(STANDARD_HASH({0}, 'SHA256'))",
            "string": "RAWTOHEX(STANDARD_HASH(UTL_I18N.STRING_TO_RAW({0}, 'AL32UTF8'), 'SHA256'))",
        },
        encoding="UTF-8",
        empty="''",
        joined=" || ",
        hash="RAWTOHEX(STANDARD_HASH({0}, 'SHA256'))",
        number="TO_NUMBER(SUBSTR({0}, {1}, 15), 'XXXXXXXXXXXXXXX')",
    ),
    "db2": _Engine(
        quotes=('"', '"'),
        forms={
            **dict.fromkeys(_INTEGERS, "VARCHAR({0})"),
            "boolean": "LOWER(VARCHAR({0}))",
            "decimal": "TRIM(VARCHAR_FORMAT({0}, '{1}'))",
            "date": "CHAR({0}, ISO)",
            "timestamp_ntz": f"VARCHAR_FORMAT({{0}}, '{_MOMENT}.FF6')",
            "binary": "HEX(HASH_SHA256({0}))",
            "string": "HEX(HASH_SHA256({0}))",
        },
        encoding="UTF-8",
        empty="''",
        joined=" || ",
        hash="HEX(HASH_SHA256({0}))",
        number=_DB2_NUMBER,
        digits=31,
    ),
}  # fmt: skip


def columns(engine: str, schema: TableSchema, silver: dict[str, SilverType]) -> tuple[list[Column], list[str]]:
    """Return how columns of a table are compared, and the names of those that are not."""
    compared, left_out = [], []
    for each in schema.columns:
        kind = silver.get(each.name)
        form = _ENGINES[engine].forms.get(kind.name) if kind is not None else None
        if kind is None or form is None or each.policy or each.type_name in _PRINTED_OTHERWISE:
            left_out.append(each.name)
            continue
        here, there = _quoted(engine, each.name), silver_name(each.name)
        digits = kind.scale if engine == "sqlserver" else _format(_ENGINES[engine].digits, kind.scale)
        # Oracle's hash of null is one.
        source = f"CASE WHEN {here} IS NOT NULL THEN {form.format(here, digits)} END"
        shown = _SPARK[kind.name].format(there, _ENGINES[engine].encoding)
        compared.append(Column(name=each.name, stored=each.name, source=source, silver=shown, free=False))
    return compared, [*left_out, *schema.excluded]


def source_statement(engine: str, schema: TableSchema, compared: Iterable[Column]) -> str:
    """Return the statement that gives the number of rows and the two sums at the database."""
    how = _ENGINES[engine]
    parts = (f"COALESCE({column.source}, '~'){how.joined}'|'" for column in compared)
    row = how.joined.join((how.empty, *parts))
    sums = ", ".join(
        f"COALESCE(SUM({how.number.format('h', start)}), 0) AS sum_{name}" for name, start in ((1, 1), (2, 1 + DIGITS))
    )
    table = f"{_quoted(engine, schema.schema)}.{_quoted(engine, schema.table)}"
    return f"SELECT {how.counted} AS row_count, {sums} FROM (SELECT {how.hash.format(row)} AS h FROM {table}) hashed"


def _quoted(engine: str, name: str) -> str:
    first, last = _ENGINES[engine].quotes
    return first + name.replace(last, last * 2) + last
