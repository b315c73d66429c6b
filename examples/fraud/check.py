"""Compares what branches accepted with the frauds that were planted: each once, none missed, none else."""

import sqlite3
from collections.abc import Iterable, Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple


class Accepted(NamedTuple):
    """An alert as a branch has it."""

    id: str
    card: str
    branch: str
    #: When it was accepted first, in seconds since 1970, and how many copies of it came.
    at: float
    copies: int


class Verdict(NamedTuple):
    """What is wrong, by alerts' ids; nothing, where all is well."""

    missed: list[str]
    false: list[str]
    #: At more than one branch, or more than once at one.
    repeated: list[str]


def accepted(database: Path) -> list[Accepted]:
    """Return the alerts that a branch has accepted, in order; none while its receiver has not started."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=60)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'blocks'").fetchone():
            return []
        rows = connection.execute("SELECT alert, card, branch, at, copies FROM blocks ORDER BY rowid").fetchall()
    return [Accepted(*row) for row in rows]


def check(planted: Mapping[str, str], alerts: Iterable[Accepted]) -> Verdict:
    """Compare alerts with what was planted."""
    ids = [alert.id for alert in alerts]
    return Verdict(
        missed=sorted(planted.keys() - set(ids)),
        false=sorted(set(ids) - planted.keys()),
        repeated=sorted({number for number in ids if ids.count(number) > 1}),
    )


def latencies(alerts: Iterable[Accepted], committed: Mapping[str, float]) -> dict[str, float]:
    """Return for each alert the seconds from the commit of the later of its two transactions to the branch's accept."""
    return {alert.id: alert.at - max(committed[number] for number in alert.id.split("+")) for alert in alerts}


def quantile(values: Iterable[float], share: float) -> float:
    """Return the value that this share of all is at most: 0.5 for the median."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
