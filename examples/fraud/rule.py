"""The rule, without Spark or Kafka: which transactions are looked at, and which two of them are a fraud.

A small payment at a flagged merchant tries out a stolen card. A large withdrawal of the same card at another place, at most ten
minutes later, is the fraud. Both times are the transactions' own, so the order in which records arrive does not matter. job.py,
plain.py and the checker use this module; job.py writes `candidate` again as a filter in SQL, which Spark runs without Python.
"""

import json
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

#: Merchants at which stolen cards were tried out before.
FLAGGED = ("freegames.example", "ringtones.example", "surveys.example")
#: A test payment is at most this much, a large withdrawal at least that much.
SMALL, LARGE = Decimal("2.00"), Decimal("300.00")
#: The longest time from the payment to the withdrawal, in milliseconds.
WITHIN_MS = 10 * 60 * 1000
#: How long a transaction is remembered, in milliseconds: as long as a region may be offline and its records be late.
KEPT_MS = 24 * 3600 * 1000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Transaction(NamedTuple):
    """A transaction that may be half of a fraud."""

    #: `SOURCE:ID` of the row. A snapshot's copy of the row has the same id, and another position.
    id: str
    card: str
    #: The card's branch, `REGION/NAME`; None where the row has none.
    branch: str | None
    place: str
    amount: str
    #: When it was made, in milliseconds since 1970.
    at_ms: int
    #: A small payment at a flagged merchant; else a large withdrawal.
    is_test: bool


def candidate(value: bytes | None) -> Transaction | None:
    """Return the transaction of a Kafka record; None where it cannot be half of a fraud, or is no new transaction at all."""
    try:
        change: dict[str, Any] = json.loads(value or b"{}")
        row = change.get("after") or {}
        # `c` is an insert, `r` a row of a snapshot. An update of a transaction is no second one.
        if change.get("op") not in {"c", "r"} or change["source"]["table"] != "transactions":
            return None
        amount = Decimal(row["amount"])
        is_test = row["kind"] == "payment" and row["merchant"] in FLAGGED and amount <= SMALL
        if not is_test and not (row["kind"] == "withdrawal" and amount >= LARGE):
            return None
        at_ms = (datetime.fromisoformat(row["made_at"]) - _EPOCH) // timedelta(milliseconds=1)
        number = f"{change['source']['name']}:{row['id']}"
        return Transaction(number, row["card"], row["branch"], row["place"], str(amount), at_ms, is_test)
    except (ValueError, KeyError, TypeError, AttributeError, InvalidOperation):
        # What a database or another producer wrote in some other form is no transaction.
        return None


def is_fraud(first: Transaction, second: Transaction) -> bool:
    """Return whether two transactions of one card are a fraud, in whichever order they are given."""
    test, withdrawal = (first, second) if first.is_test else (second, first)
    return (
        test.is_test
        and not withdrawal.is_test
        and test.place != withdrawal.place
        and 0 <= withdrawal.at_ms - test.at_ms <= WITHIN_MS
    )


def alert_id(test: str, withdrawal: str) -> str:
    """Return the id of an alert: the same for the same two transactions, whoever finds them and how often."""
    return f"{test}+{withdrawal}"


def alert(first: Transaction, second: Transaction) -> tuple[str | None, str]:
    """Return an alert as key (the card's branch) and value (JSON, the same bytes each time)."""
    test, withdrawal = (first, second) if first.is_test else (second, first)
    body = {
        "id": alert_id(test.id, withdrawal.id),
        "card": test.card,
        "test": {"id": test.id, "place": test.place, "amount": test.amount, "at_ms": test.at_ms},
        "withdrawal": {
            "id": withdrawal.id,
            "place": withdrawal.place,
            "amount": withdrawal.amount,
            "at_ms": withdrawal.at_ms,
        },
    }
    return test.branch or withdrawal.branch, json.dumps(body, sort_keys=True)
