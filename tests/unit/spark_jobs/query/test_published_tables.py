"""The list of tables as a person reads it."""

from io import StringIO

from headrace.terminal import Terminal
from spark_jobs.query.published_tables import ListedTable, show


def listed(table, **more):
    reported = {
        "state": "published",
        "reason": None,
        "keyed": True,
        "columns": {},
        "positions": {},
        "published_at": None,
    } | more
    return ListedTable(stream="bank", table=table, name=f"silver.{table}", age_seconds=None, rows=None, **reported)


def test_t13_tables_without_a_key_are_named_with_what_they_lack():
    out = StringIO()
    show(Terminal(file=out, width=200), [listed("a"), listed("b", keyed=False), listed("c", keyed=False)])
    assert "without a key, so rows are known by all of their columns, and have no history: b, c" in out.getvalue()
    out = StringIO()
    show(Terminal(file=out, width=200), [listed("a")])
    assert "without a key" not in out.getvalue()


def test_t12_columns_under_other_names_are_named():
    out = StringIO()
    show(Terminal(file=out, width=200), [listed("public.a", columns={"Id": "Id_3f0a"})])
    assert "bank public.a has columns under other names: Id as Id_3f0a" in out.getvalue()
