"""The texts by which two engines' values are compared, where they are not plainly the same."""

import pytest

from headrace.verify import canonical
from headrace.verify.canonical import SilverType, SourceType
from headrace.verify.comparison import SourceTable
from spark_jobs.silver.target_schema import NAN
from spark_jobs.verify import tables


def compared(silver, name="amount"):
    table = SourceTable(
        schema="public", name="t", columns={name: SourceType(name="numeric", scale=2)}, key=(), partitioned=False,
        partition_of=frozenset(),
    )  # fmt: skip
    (column,) = tables.plan(table, silver, {}).columns
    return column


def test_a_decimal_that_is_nan_is_the_same_on_both_sides_whatever_the_scales():
    column = compared({"amount": SilverType(name="decimal", scale=4), NAN: SilverType(name="array")})
    assert column.source == """case when "amount" = 'NaN' then 'NaN' else "amount"::text || '00' end"""
    assert column.silver == "if(coalesce(array_contains(`_nan`, 'amount'), false), 'NaN', cast(`amount` as string))"


def test_a_table_without_the_column_is_compared_as_before():
    assert compared({"amount": SilverType(name="decimal", scale=2)}).silver == "cast(`amount` as string)"


@pytest.mark.parametrize(("name", "text"), [("a'b", r"'a\'b'"), ("a\\b", r"'a\\b'")])
def test_names_are_quoted(name, text):
    assert text in compared({name: SilverType(name="decimal", scale=2), NAN: SilverType(name="array")}, name).silver


@pytest.mark.parametrize("kind", ["regclass", "regtype", "regproc", "regconfig", "regdictionary", "regcollation"])
def test_what_is_named_by_the_search_path_is_compared_without_its_schema(kind):
    """The log has `t` where the path of the edge's role has its schema; verify's own path has none."""
    column = canonical.column("v", SourceType(name=kind), SilverType(name="string"))
    assert column.source == """regexp_replace(format('%s', "v"), '^.*[.]', '')"""
    assert column.silver == "regexp_replace(`v`, '^.*[.]', '')"


@pytest.mark.parametrize("kind", ["regprocedure", "regoper", "regoperator", "_regclass", "_regproc", "_regoperator"])
def test_nor_with_schemas_within_it(kind):
    column = canonical.column("v", SourceType(name=kind), SilverType(name="string"))
    prefix = """'(("[^"]*")+|[^(),{}" ]+)[.]', ''"""
    here, there = """format('%s', "v")""", "`v`"
    if kind.startswith("_"):
        here, there = f"""translate({here}, E'"\\\\', '')""", f"""translate({there}, '"\\\\', '')"""
    assert (column.source, column.silver) == (
        f"regexp_replace({here}, {prefix}, 'g')", f"regexp_replace({there}, {prefix})",
    )  # fmt: skip
