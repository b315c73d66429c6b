"""What was measured: a table on the screen and a list in build/bench.json, each figure beside what it is compared with."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

FILE = Path("build/bench.json")


@dataclass(frozen=True)
class Result:
    """One figure. `ratio` is value divided by the peer's; both are None where a figure has no peer."""

    name: str
    value: float
    unit: str
    peer: float | None = None
    ratio: float | None = None


def compared(name: str, value: float, unit: str, peer: float) -> Result:
    """Return a figure beside its peer's."""
    return Result(name, round(value, 1), unit, round(peer, 1), round(value / peer, 3))


def show(console: Console, results: list[Result]) -> None:
    """Print the table."""
    table = Table(title="Measured in this run, on this machine")
    for column in ("what", "figure", "unit", "peer", "ratio"):
        table.add_column(column, justify="left" if column in {"what", "unit"} else "right")
    for result in results:
        table.add_row(result.name, _text(result.value), result.unit, _text(result.peer), _text(result.ratio))
    console.print(table)


def write(results: list[Result], path: Path = FILE) -> None:
    """Write the list."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(result) for result in results], indent=1) + "\n")


def _text(figure: float | None) -> str:
    if figure is None:
        return "-"
    return f"{figure:,.0f}" if abs(figure) >= 1000 else f"{figure:g}"
