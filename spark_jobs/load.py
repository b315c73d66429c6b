"""One load of a stream: bronze, then silver, with a report that a person or a program can read.

Called by the command and by submit.py. What a step committed stays when the next one fails.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from pyspark.sql import SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import NeedsOperator
from spark_jobs import bronze
from spark_jobs.bronze import BronzeReport
from spark_jobs.silver import load as silver
from spark_jobs.silver.load import SilverReport

Step = Literal["bronze", "silver"]
#: Hears the step, what is done and what there is to do.
Tell = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Report:
    """What a load did; a step that was not asked for is None."""

    bronze: BronzeReport | None = None
    silver: SilverReport | None = None

    def plain(self) -> dict[str, Any]:
        """Return the report as plain data."""
        return {step: found for step, found in asdict(self).items() if found is not None}

    def check(self) -> None:
        """Raise NeedsOperator when a table of silver stopped."""
        problems = self.silver.problems if self.silver else {}
        if self.silver and problems:
            listed = "; ".join(problem for _, problem in sorted(problems.items()))
            raise NeedsOperator(
                f"stream {self.silver.stream!r}: {len(problems)} table(s) stopped, the others are loaded: {listed}"
            )


def run(
    spark: SparkSession,
    lake: LakeFile,
    stream: str,
    *,
    only: Step | None = None,
    accept_gap: bool = False,
    tell: Tell | None = None,
) -> Report:
    """Load a stream; raise what either step raises. A table that stopped alone is in the report."""
    lake.stream(stream)

    def hear(step: str) -> Callable[[int, int], None] | None:
        return (lambda done, todo: tell(step, done, todo)) if tell else None

    raw = bronze.load(spark, lake, stream, accept_gap=accept_gap, tell=hear("bronze")) if only != "silver" else None
    current = silver.load(spark, lake, stream, tell=hear("silver")) if only != "bronze" else None
    return Report(bronze=raw, silver=current)
