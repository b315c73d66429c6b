"""Statements for databases that nobody here has run: their texts, which columns they have, and names that stay names."""

import pytest

from headrace.schema import Column, TableSchema
from headrace.verify import by_hand
from headrace.verify.canonical import SilverType

SILVER = {"id": SilverType(name="integer"), "note": SilverType(name="string")}
ENDS = {
    "sqlserver": (
        "SELECT COUNT_BIG(*) AS row_count, COALESCE(SUM(CAST(CONVERT(BIGINT, CONVERT(VARBINARY(8), '0' + SUBSTRING(h, 1, 15), 2))"
        " AS DECIMAL(38, 0))), 0) AS sum_1, COALESCE(SUM(CAST(CONVERT(BIGINT, CONVERT(VARBINARY(8), '0' + SUBSTRING(h, 16, 15),"
        " 2)) AS DECIMAL(38, 0))), 0) AS sum_2 FROM (SELECT CONVERT(VARCHAR(64), HASHBYTES('SHA2_256', CAST('' AS VARCHAR(MAX)) +"
        " COALESCE(CASE WHEN [id] IS NOT NULL THEN CONVERT(VARCHAR(20), [id]) END, '~') + '|' + COALESCE(CASE WHEN [note] IS NOT"
        " NULL THEN CONVERT(VARCHAR(64), HASHBYTES('SHA2_256', CAST([note] AS NVARCHAR(MAX))), 2) END, '~') + '|'), 2) AS h"
        " FROM [s].[t]) hashed"
    ),
    "oracle": (
        "SELECT COUNT(*) AS row_count, COALESCE(SUM(TO_NUMBER(SUBSTR(h, 1, 15), 'XXXXXXXXXXXXXXX')), 0) AS sum_1,"
        " COALESCE(SUM(TO_NUMBER(SUBSTR(h, 16, 15), 'XXXXXXXXXXXXXXX')), 0) AS sum_2 FROM (SELECT"
        " RAWTOHEX(STANDARD_HASH('' || COALESCE(CASE WHEN \"id\" IS NOT NULL THEN TO_CHAR(\"id\") END, '~') || '|' ||"
        ' COALESCE(CASE WHEN "note" IS NOT NULL THEN RAWTOHEX(STANDARD_HASH(UTL_I18N.STRING_TO_RAW("note", \'AL32UTF8\'),'
        " 'SHA256')) END, '~') || '|', 'SHA256')) AS h FROM \"s\".\"t\") hashed"
    ),
    "db2": (
        " AS sum_2 FROM (SELECT HEX(HASH_SHA256('' || COALESCE(CASE WHEN \"id\" IS NOT NULL THEN VARCHAR(\"id\") END, '~') || '|'"
        " || COALESCE(CASE WHEN \"note\" IS NOT NULL THEN HEX(HASH_SHA256(\"note\")) END, '~') || '|')) AS h"
        ' FROM "s"."t") hashed'
    ),
}


def table(schema="s", name="t", **columns):
    """Return a table of columns by the types that schema records have."""
    listed = [Column(name=each, type_name=kind, position=at) for at, (each, kind) in enumerate(columns.items(), 1)]
    return TableSchema(schema=schema, table=name, key=[], columns=listed, excluded=[])


def statement(engine, schema, silver):
    compared, left_out = by_hand.columns(engine, schema, silver)
    return by_hand.source_statement(engine, schema, compared), left_out


@pytest.mark.parametrize("engine", ENDS)
def test_a_table_is_counted_and_summed_by_one_statement(engine):
    text, left_out = statement(engine, table(id="int4", note="text"), SILVER)
    assert left_out == []
    assert text.endswith(ENDS[engine])


def test_the_digits_of_a_hash_add_up_to_its_number():
    """Db2's own sum, reckoned as it does."""
    text, _ = statement("db2", table(id="int4"), SILVER)
    digits = "0fedcba98765432"
    terms = text[text.index("SUM(") + 4 : text.index("), 0) AS sum_1")].split(" + INSTR")
    assert len(terms) == 15
    factors = [int(term.partition("DECIMAL(")[2].partition(",")[0]) for term in terms]
    places = [f"SUBSTR(h, 1 + {at}, 1)" in term for at, term in enumerate(terms)]
    total = sum(
        "123456789ABCDEF".find(digit.upper()) * factor + factor for digit, factor in zip(digits, factors, strict=True)
    )
    assert (all(places), total) == (True, int(digits, 16))


@pytest.mark.parametrize(
    ("engine", "kind", "scale", "part"),
    [
        ("sqlserver", "decimal", 2, "CONVERT(VARCHAR(45), CAST([c] AS DECIMAL(38, 2)))"),
        ("sqlserver", "timestamp", 0, "CAST(SWITCHOFFSET([c], '+00:00') AS DATETIME2(7)), 121), 26)"),
        ("oracle", "decimal", 2, f"TO_CHAR(\"c\", 'FM{'9' * 35}0.00')"),
        ("oracle", "decimal", 0, f"TO_CHAR(\"c\", 'FM{'9' * 37}0')"),
        ("oracle", "timestamp_ntz", 0, "SUBSTR(TO_CHAR(CAST(\"c\" AS TIMESTAMP(9)), 'YYYY-MM-DD HH24:MI:SS.FF9'), 1, 26)"),
        ("db2", "decimal", 3, f"TRIM(VARCHAR_FORMAT(\"c\", '{'9' * 27}0.000'))"),
        ("db2", "timestamp_ntz", 0, "VARCHAR_FORMAT(\"c\", 'YYYY-MM-DD HH24:MI:SS.FF6')"),
    ],
)  # fmt: skip
def test_a_value_is_written_as_silver_writes_it(engine, kind, scale, part):
    text, _ = statement(engine, table(c="numeric"), {"c": SilverType(name=kind, scale=scale)})
    assert part in text


def test_what_is_printed_otherwise_kept_back_or_unknown_there_is_left_out_and_named():
    schema = table(id="int4", f="float8", clock="time", zoned="timestamptz", gone="int4")
    silver = {"id": SilverType(name="integer"), "f": SilverType(name="double"), "clock": SilverType(name="string")}
    silver |= {"zoned": SilverType(name="timestamp")}
    assert statement("db2", schema, silver)[1] == ["f", "clock", "zoned", "gone"]
    assert statement("oracle", schema, silver)[1] == ["f", "clock", "gone"]


@pytest.mark.parametrize(
    ("engine", "quoted"), [("sqlserver", "[a]]]; drop]"), ("oracle", '"a]; drop"'), ("db2", '"a]; drop"')]
)
def test_a_name_stays_a_name(engine, quoted):
    text, _ = statement(engine, table(name="a]; drop", **{'q"]': "int4"}), {'q"]': SilverType(name="integer")})
    assert f".{quoted.replace(']]]', ']]')}) hashed" in text
    assert ('[q"]]]' if engine == "sqlserver" else '"q""]"') in text
