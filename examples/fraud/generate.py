"""Card transactions with frauds in them: the plan, from a seed, knows each fraud, and a writer commits it to the databases.

Around the frauds there is ordinary traffic, and near misses: too late, too small, at the same place, at a merchant that is not
flagged, a payment that is too large, a withdrawal that was made before the payment. No card has more than one of these cases,
so which alerts there have to be is known without the rule's own code.
"""

import itertools
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple

import rule

#: Branches of each region, and merchants that are not flagged.
BRANCHES, MERCHANTS = 5, ("grocer.example", "fuel.example", "bakery.example", "books.example")
PLACES = {"jakarta": ("Jakarta", "Bandung", "Surabaya"), "singapore": ("Bedok", "Tampines", "Jurong")}
#: Of so many ordinary cards each makes large withdrawals, or pays little at flagged merchants: halves of a fraud, alone.
HALVES = 50
_INSERT = "INSERT INTO transactions (id, card, branch, kind, merchant, place, amount, made_at) VALUES (%s,%s,%s,%s,%s,%s,%s,%s)"


class Planned(NamedTuple):
    """A row that is to be committed in a region's database, `due` seconds after the start."""

    due: float
    region: str
    id: int
    card: str
    branch: str | None
    kind: str
    merchant: str | None
    place: str
    amount: str
    #: When it is made, in seconds after the start.
    at: float

    @property
    def number(self) -> str:
        """The transaction's id, as the rule names it."""
        return f"{self.region}/cards:{self.id}"


class Plan(NamedTuple):
    """All rows, by the time when they are due, and what has to come of them."""

    rows: list[Planned]
    #: What each alert has to be about: its id, and the case it comes from.
    alerts: dict[str, str]
    #: Alerts for cards without a branch: they have nowhere to go, and become dead letters.
    undeliverable: dict[str, str]


class Case(NamedTuple):
    """A payment and a withdrawal of one card; what is not given makes them a fraud."""

    name: str
    alerts: int = 1
    #: Seconds from the payment to the withdrawal, by their own times, and from one commit to the other.
    apart: float = 90.0
    committed_apart: float = 0.5
    paid: str = "1.00"
    withdrawn: str = "400.00"
    merchant: str = rule.FLAGGED[0]
    same_place: bool = False
    same_region: bool = False
    has_branch: bool = True
    tests: int = 1


FRAUDS = (
    Case("in two regions"),
    Case("in one region", same_region=True),
    Case("at the limits", apart=rule.WITHIN_MS / 1000, paid=str(rule.SMALL), withdrawn=str(rule.LARGE)),
    Case("withdrawal seen first", committed_apart=-0.5),
    Case("two test payments", tests=2, alerts=2, merchant=rule.FLAGGED[1]),
)
NEAR_MISSES = (
    Case("too late", alerts=0, apart=rule.WITHIN_MS / 1000 + 1),
    Case("too small", alerts=0, withdrawn="299.99"),
    Case("payment too large", alerts=0, paid="2.01"),
    Case("same place", alerts=0, same_place=True, same_region=True),
    Case("merchant not flagged", alerts=0, merchant=MERCHANTS[0]),
    Case("withdrawal before the payment", alerts=0, apart=-5.0),
    Case("withdrawal before the payment, seen later", alerts=0, apart=-5.0, committed_apart=0.8),
)
UNDELIVERABLE = Case("card without a branch", has_branch=False)


def plan(*, seed: int, seconds: float, rate: float, frauds: int, undeliverable: int = 1, part: int = 0) -> Plan:
    """Return so many transactions a second for both regions together, with so many frauds and as many near misses.

    Plans of different `part` share no transaction and no card with a case, so that one can follow another.
    """
    chance = random.Random(seed)  # noqa: S311 - traffic.
    numbers = itertools.count(part * 10**9 + 1)
    regions = tuple(PLACES)
    rows: list[Planned] = []
    alerts: dict[str, str] = {}
    without: dict[str, str] = {}
    cases = [
        *(FRAUDS[number % len(FRAUDS)] for number in range(frauds)),
        *(NEAR_MISSES[number % len(NEAR_MISSES)] for number in range(frauds)),
        *(UNDELIVERABLE,) * undeliverable,
    ]
    chance.shuffle(cases)
    for number, case in enumerate(cases):
        # Spread over the time, with the last ones early enough for both halves.
        due = 1.0 + (seconds - 2.0) * (number + chance.random()) / len(cases)
        case_rows = _case(case, f"case-{part}-{number:05}", due, chance, numbers)
        rows += case_rows
        *tests, withdrawal = case_rows
        case_alerts = {rule.alert_id(test.number, withdrawal.number): case.name for test in tests[: case.alerts]}
        (alerts if case.has_branch else without).update(case_alerts)
    for due in (count / rate for count in range(int(seconds * rate) - len(rows))):
        rows.append(_ordinary(due, chance.choice(regions), chance.randrange(2000), chance, next(numbers)))
    return Plan(sorted(rows), alerts, without)


def _case(case: Case, card: str, due: float, chance: random.Random, numbers: Iterator[int]) -> list[Planned]:
    """Return the rows of a case: its test payments, and the withdrawal last."""
    here = chance.choice(list(PLACES))
    there = here if case.same_region else next(region for region in PLACES if region != here)
    place, elsewhere, *_ = chance.sample(PLACES[here], 2) if here == there else (PLACES[here][0], PLACES[there][0])
    branch = f"{here}/branch-{chance.randrange(BRANCHES)}" if case.has_branch else None
    # Whole milliseconds, as the limit of ten minutes is one.
    at = round(due - 1, 3)
    paid = [
        Planned(due + each / 10, here, next(numbers), card, branch, "payment", case.merchant, place, case.paid, at)
        for each in range(case.tests)
    ]
    drawn = Planned(
        max(0.0, due + case.committed_apart), there, next(numbers), card, branch, "withdrawal", None,
        place if case.same_place else elsewhere, case.withdrawn, at + case.apart,
    )  # fmt: skip
    return [*paid, drawn]


def _ordinary(due: float, region: str, card: int, chance: random.Random, number: int) -> Planned:
    kind, merchant, amount = "payment", chance.choice(MERCHANTS), f"{chance.randrange(50, 20000) / 100:.2f}"
    if card % HALVES == 0:
        kind, merchant, amount = "withdrawal", None, f"{chance.randrange(30000, 90000) / 100:.2f}"
    elif card % HALVES == 1:
        merchant, amount = chance.choice(rule.FLAGGED), f"{chance.randrange(50, 200) / 100:.2f}"
    elif chance.random() < 0.2:
        kind, merchant, amount = "withdrawal", None, f"{chance.randrange(1000, 29900) / 100:.2f}"
    branch = f"{region}/branch-{card % BRANCHES}"
    return Planned(
        due, region, number, f"card-{card:05}", branch, kind, merchant, chance.choice(PLACES[region]), amount, due
    )


class Writers:
    """Commits a plan's rows when they are due, each in a transaction of its own, and notes when each was committed."""

    def __init__(self, rows: list[Planned], connect: dict[str, Callable[[], Any]], *, clients: int = 3) -> None:
        #: When a row was committed, in seconds since 1970, by the transaction's id: after COMMIT returned.
        self.committed: dict[str, float] = {}
        self.failures: list[Exception] = []
        self._ended = threading.Event()
        self._start = 0.0
        self._threads = [
            threading.Thread(target=self._write, args=(connect[region], mine[number::clients]), daemon=True)
            for region in connect
            for mine in [[row for row in rows if row.region == region]]
            for number in range(clients)
        ]

    def start(self) -> None:
        """Start to write; returns at once."""
        self._start = round(time.time() + 0.5, 3)
        for thread in self._threads:
            thread.start()

    def wait(self) -> None:
        """Wait until everything is committed; raise what a writer ended with."""
        for thread in self._threads:
            thread.join()
        if self.failures:
            raise self.failures[0]

    def stop(self) -> None:
        """End at once."""
        self._ended.set()
        for thread in self._threads:
            if thread.is_alive():
                thread.join()

    def _write(self, connect: Callable[[], Any], rows: list[Planned]) -> None:
        try:
            with closing(connect()) as connection, closing(connection.cursor()) as cursor:
                for row in rows:
                    if self._ended.wait(max(0.0, self._start + row.due - time.time())):
                        return
                    # MariaDB's connection has the time zone UTC and wants none in the text.
                    at = datetime.fromtimestamp(round(self._start + row.at, 3), UTC).replace(tzinfo=None).isoformat(" ")
                    cursor.execute(_INSERT, (*row[2:9], at))
                    connection.commit()
                    self.committed[row.number] = time.time()
        except Exception as error:  # noqa: BLE001 - raised by `wait`.
            self.failures.append(error)
