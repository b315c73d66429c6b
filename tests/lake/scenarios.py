"""Scenarios of tables that share the loads of one lake: a load costs seconds, whatever is in it.

A scenario is a generator: what it commits before a `yield` is in the load that follows, whose report the `yield` returns. Each
has tables of its own, and ends no transaction of a source late, since all tables of the source would wait.
"""

from collections.abc import Callable, Generator

from spark_jobs.silver.load import SilverReport
from tests.lake.logged import LoggedLake

Scenario = Generator[None, SilverReport, None]


def run(lake: LoggedLake, *scenarios: Callable[[LoggedLake], Scenario]) -> None:
    """Run the scenarios side by side, with a load after each step, until all have ended."""
    running = [scenario(lake) for scenario in scenarios]
    for each in running:
        next(each)
    while running:
        report = lake.load()
        running = [each for each in running if not _ended(each, report)]


def _ended(scenario: Scenario, report: SilverReport) -> bool:
    try:
        scenario.send(report)
    except StopIteration:
        return True
    return False
