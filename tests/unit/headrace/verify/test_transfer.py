"""What crosses the interconnect in a verification is what was put in, whatever the engine."""

import msgspec
import pytest

from headrace import errors
from headrace.errors import CorruptInput, NeedsOperator
from headrace.verify import comparison, contract, sources
from headrace.verify.canonical import SilverType, SourceType
from headrace.verify.comparison import Digest, SourceTable, check_hashes


def crossed(value, kind):
    """Return a value as it is on the other side."""
    return msgspec.convert(msgspec.json.decode(msgspec.json.encode(msgspec.to_builtins(value))), kind)


@pytest.mark.parametrize(("engine", "decimal"), [("postgresql", "numeric"), ("mysql", "decimal")])
def test_columns_have_the_same_texts_on_both_sides(engine, decimal):
    forms = sources.forms(engine)
    table = SourceTable(
        schema="bank", name="accounts", columns={"id": SourceType(name="int4" if engine == "postgresql" else "int"),
        "a": SourceType(name=decimal, scale=2), "new": SourceType(name="text")}, key=("id",), partition_of=frozenset({"x.y"}),
    )  # fmt: skip
    columns = [
        forms.column("id", table.columns["id"], SilverType(name="integer")),
        forms.column("a", table.columns["a"], SilverType(name="decimal", scale=4), nan=engine == "postgresql"),
        forms.absent("new"),
    ]

    there = crossed(contract.describe_table(table, columns, columns[:1]), contract.ComparedTable)

    assert contract.columns_of(there, crossed(table, SourceTable), forms) == (columns, columns[:1])


def test_sums_and_places_of_any_size_cross():
    grid = comparison.grid(comparison.keys(-(2**63), 2**62 - 2**63 - 1), 16).cut(3, 4)
    digests = {0: Digest(2**40, 2**100, 2**100 + 1), 5: Digest()}

    step = contract.encode_arguments("a" * 16, 1, contract.Digests(table=contract.ComparedTable(name="a.b"), grid=grid))
    assert contract.parse_arguments(crossed(step, dict)).what.grid == grid
    assert (
        contract.decode_digests(crossed(contract.encode_digests(digests), list[tuple[int, int, str, str]])) == digests
    )


def test_errors_cross_with_who_must_act():
    for kind in (errors.NoSpace, errors.ConfigurationError, errors.CorruptInput, errors.NotConnected):
        result = contract.error_of(crossed(contract.failure(kind("why", hint="what to do")), contract.Failure))
        assert isinstance(result, kind if kind is not errors.NoSpace else errors.Retryable)
        assert (result.message, result.hint) == ("why", "what to do")
    unknown = contract.Failure(kind="SomethingNew", message="why")
    assert isinstance(contract.error_of(unknown), NeedsOperator)


def test_what_is_no_column_of_the_table_or_no_hash_is_refused():
    table = SourceTable(schema="a", name="b", columns={"id": SourceType(name="int4")}, key=("id",))
    for asked in (
        contract.ComparedTable(name="a.b", columns=[contract.ComparedColumn(name='id" --')]),
        contract.ComparedTable(
            name="a.b", columns=[contract.ComparedColumn(name="id", in_silver=SilverType(name="date"))]
        ),
        contract.ComparedTable(name="a.b", key=["id"]),
    ):
        with pytest.raises(CorruptInput):
            contract.columns_of(asked, table, sources.forms("postgresql"))
    with pytest.raises(CorruptInput):
        check_hashes(["0" * 32, "' or 1=1 --"])
