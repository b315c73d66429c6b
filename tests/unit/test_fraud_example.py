"""The fraud example's rule, its generator's plan and its checker, without a server."""

import importlib
import json
import sys
from itertools import combinations
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "fraud"
SOURCE = {"name": "jakarta/cards", "table": "transactions", "position": "1/2/3"}


@pytest.fixture
def example(monkeypatch):
    """Return a function that imports a module of the example."""
    monkeypatch.syspath_prepend(EXAMPLE)
    yield importlib.import_module
    for name in ("rule", "generate", "check"):
        sys.modules.pop(name, None)


def record(op="c", source=SOURCE, **row):
    row = {
        "id": 7, "card": "a", "branch": "jakarta/1", "kind": "payment", "merchant": "surveys.example", "place": "Bandung",
        "amount": "1.50", "made_at": "2026-01-31T09:15:00.25Z",
    } | row  # fmt: skip
    return json.dumps({"op": op, "source": source, "after": row}).encode()


def test_a_small_payment_at_a_flagged_merchant_is_a_candidate_by_insert_and_by_snapshot(example):
    candidate = example("rule").candidate

    inserted, copied = candidate(record()), candidate(record("r"))

    assert inserted == copied == ("jakarta/cards:7", "a", "jakarta/1", "Bandung", "1.50", 1769850900250, True)


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"no JSON",
        b"[]",
        b'{"source":{},"tableChanges":[]}',
        record("u"),
        record(source=SOURCE | {"table": "cards"}),
        record(amount="2.01"),
        record(merchant="grocer.example"),
        record(merchant=None),
        record(kind="withdrawal", amount="299.99"),
        record(made_at="-infinity"),
        record(amount="NaN"),
        record(amount=None),
        json.dumps({"op": "d", "source": SOURCE, "after": None}).encode(),
        json.dumps({"op": "c", "source": SOURCE, "after": {"id": 7}}).encode(),
    ],
)
def test_anything_else_is_none(example, value):
    assert example("rule").candidate(value) is None


def test_the_alerts_of_a_plan_are_those_that_comparing_all_pairs_finds(example):
    rule, generate = example("rule"), example("generate")
    plan = generate.plan(seed=5, seconds=20, rate=100, frauds=40, undeliverable=3)
    known = {}
    for row in plan.rows:
        seconds, milliseconds = divmod(1769850900000 + round(row.at * 1000), 1000)
        made_at = f"{generate.datetime.fromtimestamp(seconds, generate.UTC):%Y-%m-%dT%H:%M:%S}.{milliseconds:03}Z"
        value = record(source=SOURCE | {"name": f"{row.region}/cards"}, **row._asdict() | {"made_at": made_at})
        if (found := rule.candidate(value)) is not None:
            known.setdefault(found.card, []).append(found)

    found = {
        json.loads(rule.alert(first, other)[1])["id"]
        for transactions in known.values()
        for first, other in combinations(transactions, 2)
        if rule.is_fraud(first, other)
    }

    assert found == plan.alerts.keys() | plan.undeliverable.keys()
    assert len(plan.alerts) == 48
    assert len(plan.undeliverable) == 3
    assert len(plan.rows) == 2000


def test_the_checker_finds_what_is_missed_false_and_repeated(example):
    check = example("check")
    numbers = [check.Accepted(number, "card", "branch", 0.0, 1) for number in ("a", "b", "b", "x")]

    verdict = check.check({"a": "", "b": "", "c": ""}, numbers)

    assert verdict == (["c"], ["x"], ["b"])
