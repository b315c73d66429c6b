"""What a statement that is run by hand has to give: silver's half, beside the same text made here, value by value."""

import hashlib

from headrace.schema import Column, TableSchema
from spark_jobs.verify.verify import report_statements
from tests.lake.verify_sides import SOURCE, Frames, rows

ROWS = (
    "(1Y, 20L, 3.50BD, true, 'naïve|~é😀', X'00ff', DATE '2026-01-31', TIMESTAMP_NTZ '2026-01-31 09:15:00.25', 1.5D)",
    "(-2Y, null, null, null, null, null, null, null, null)",
)
COLUMNS = {"id": "int2", "big": "int8", "n": "numeric", "flag": "bool", "words": "text", "data": "bytea", "day": "date",
    "at": "timestamp", "f": "float8"}  # fmt: skip


class Silver(Frames):
    """Silver tables with a schema."""

    def schema(self, source, name):
        columns = [Column(name=each, type_name=kind, position=at) for at, (each, kind) in enumerate(COLUMNS.items(), 1)]
        return TableSchema(schema="dbo", table="everything", key=["id"], columns=columns)


def sha(data):
    return hashlib.sha256(data).hexdigest().upper()


def test_silvers_half_is_the_sum_over_the_texts_that_the_statement_has(spark):
    frame = rows(spark, ", ".join(COLUMNS), *ROWS).selectExpr("cast(id AS smallint) AS id", *[*COLUMNS][1:])
    for engine, encoding in (("sqlserver", "utf-16-le"), ("oracle", "utf-8"), ("db2", "utf-8")):
        words, data = sha("naïve|~é😀".encode(encoding)), sha(b"\x00\xff")
        first = f"1|20|3.50|true|{words}|{data}|2026-01-31|2026-01-31 09:15:00.250000|"
        hashes = [sha(text.encode()) for text in (first, "-2|~|~|~|~|~|~|~|")]
        sums = [sum(int(each[at : at + 15], 16) for each in hashes) for at in (0, 15)]
        (report,) = report_statements(SOURCE, engine, Silver(dbo__everything=frame))
        assert (report.verdict, report.rows_lake) == ("not compared", 2)
        assert f"this gives 2, {sums[0]}, {sums[1]} there, without f: SELECT" in report.reasons[0]
