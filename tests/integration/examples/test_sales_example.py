"""The example of sales in two regions: its schema is a database's, and its questions have the right answers."""

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from spark_jobs import load
from spark_jobs.query import engine

FOLDER = Path(__file__).parents[3] / "examples" / "sales"
J, L = "jakarta/sales", "london/sales"
TEXT, BIG, INT, AT = ("text", None, None), ("int8", None, None), ("int4", None, None), ("timestamptz", None, None)
TABLES = {
    "customers": ({"id": BIG, "email": TEXT, "name": TEXT, "country": TEXT}, ["id"]),
    "products": ({"sku": TEXT, "name": TEXT, "category": TEXT}, ["sku"]),
    "orders": ({"id": BIG, "customer_id": BIG, "placed_at": AT, "currency": TEXT, "status": TEXT}, ["id"]),
    "order_lines": (
        {"order_id": BIG, "line": INT, "sku": TEXT, "quantity": INT, "unit_price": ("numeric", 14, 2)},
        ["order_id", "line"],
    ),
    "rates": ({"currency": TEXT, "day": ("date", None, None), "pounds": ("numeric", 18, 9)}, ["currency", "day"]),
}


def questions():
    text = (FOLDER / "questions.sql").read_text()
    return [question.strip() for question in text.split(";") if question.strip()]


def row(source, table, *values):
    return source.insert(f"public.{table}", **dict(zip(TABLES[table][0], values, strict=True)))


def at(day, hour):
    return int(datetime(2026, 1, day, hour, tzinfo=UTC).timestamp() * 1000)


def test_schema_is_what_the_questions_are_asked_of(database):
    # given
    database.execute((FOLDER / "schema.sql").read_text())
    # then
    results = {}
    for table, name, kind, precision, scale in database.execute(
        "SELECT table_name, column_name, udt_name, numeric_precision, numeric_scale FROM information_schema.columns"
        " WHERE table_schema = 'public' ORDER BY table_name, ordinal_position"
    ):
        numeric = kind == "numeric"
        results.setdefault(table, {})[name] = (kind, precision if numeric else None, scale if numeric else None)
    assert results == {table: columns for table, (columns, _) in TABLES.items()}


@pytest.fixture
def sales(spark, feed, lake_file):
    """Return a lake with a few orders of two regions, of which one change is not yet merged."""
    jakarta = feed(J, partitions=2)
    london = feed(L, into=jakarta.topic, partition=1)
    path = Path(lake_file(sales=jakarta.topic).path)
    named = path.read_text().replace("/bank", "/sales") + '[streams.sales.tables."public.orders"]\nhistory = true\n'
    path.write_text(named)
    lake = load_file(path, LakeFile)
    for source in (jakarta, london):
        schemas = [source.schema(columns, key, f"public.{table}") for table, (columns, key) in TABLES.items()]
        source.commit(*schemas, row(source, "products", "tea", "Tea", "drinks"), at=at(1, 0))
    jakarta.commit(
        row(jakarta, "customers", 7, "ana@example.com", "Ana", "ID"),
        # Still the 30th in London.
        row(jakarta, "orders", 1, 7, "2026-01-30T18:00:00Z", "IDR", "placed"),
        row(jakarta, "order_lines", 1, 1, "tea", 2, "250000.00"),
        at=at(30, 18),
    )
    jakarta.commit(
        jakarta.update(
            "public.orders", id=1, customer_id=7, placed_at="2026-01-30T18:00:00Z", currency="IDR", status="shipped"
        ),
        at=at(31, 0),
    )
    london.commit(
        row(london, "customers", 1, "Ana@example.com", "Ana", "GB"),
        row(london, "orders", 1, 1, "2026-01-31T09:00:00Z", "GBP", "paid"),
        row(london, "order_lines", 1, 1, "tea", 3, "12.50"),
        row(london, "orders", 2, 1, "2026-01-31T10:00:00Z", "GBP", "cancelled"),
        row(london, "order_lines", 2, 1, "tea", 1, "12.50"),
        row(london, "rates", "IDR", "2026-01-31", "0.000045000"),
        row(london, "rates", "GBP", "2026-01-31", "1.000000000"),
        at=at(31, 10),
    )
    load.run(spark, lake, "sales")
    # It comes late: London's changes of later are published already.
    jakarta.commit(row(jakarta, "orders", 2, 7, "2026-01-31T08:00:00Z", "IDR", "paid"), at=at(31, 9))
    load.run(spark, lake, "sales", only="bronze")
    return lake


@pytest.mark.long
def test_questions_of_headquarters_have_their_answers(spark, sales):
    # when
    sql_engine = engine.SqlEngine(spark, sales)
    answers = [[tuple(row) for row in sql_engine.ask(question).collect()] for question in questions()]
    sql_engine.close()
    # then
    revenue, both, known, waiting, shipping, versions = answers
    assert [(region, str(day), orders, pounds) for region, day, orders, pounds in revenue] == [
        (J, "2026-01-31", 1, Decimal("22.50")),
        (L, "2026-01-31", 1, Decimal("37.50")),
    ]
    assert both == [("tea", "Tea", 2, 4)]
    assert known == [("ana@example.com", 2, ["GB", "ID"])]
    assert [(region, count) for region, count, _ in waiting] == [(J, 1), (L, 1)]
    assert shipping == [(J, 1, 6.0)]
    assert [(status, end is None) for status, _, end in versions] == [("placed", False), ("shipped", True)]
