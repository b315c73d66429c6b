"""A table of the lake as its page shows it: what it has of each source, how fresh that is, and its views in SQL. Pure."""

from dataclasses import dataclass

from headrace.configuration.lake import Stream, TableOptions
from headrace.console.bridges import BridgesView
from headrace.console.lake_view import LakeView, TablePublished, Verdict

#: Sources on one page.
MOST_SOURCES = 100


@dataclass(frozen=True, kw_only=True)
class SourceOfTable:
    """What a table has of a source."""

    source: str
    position: str
    #: How old what readers of the table lack may be, in seconds; None where that is not known.
    lag: float | None
    verdict: Verdict | None
    #: Where its copy that is under way began; empty for none.
    copying: str


def of_table(table: TablePublished, lake: LakeView, bridges: BridgesView) -> list[SourceOfTable]:
    """Return the sources of a table, those first whose last verdict is the worst."""
    verdicts = lake.verdicts_of_table(table.stream, table.table)
    found = []
    for source, position in table.positions.items():
        seen, lag = bridges.sources.get(source), None
        # What is known of positions is of the whole stream: a table that is behind it lacks more.
        if seen is not None and table.state == "published":
            lag = lake.lag("silver", source, seen.status.position, bridges.at, is_heard=not seen.problem)
        found.append(
            SourceOfTable(
                source=source,
                position=position,
                lag=lag,
                verdict=verdicts.get(source),
                copying=table.copying.get(source, ""),
            )
        )
    order = ("not equal", "not compared", "equal")
    return sorted(
        found,
        key=lambda one: (
            order.index(one.verdict.verdict) if one.verdict and one.verdict.verdict in order else 1,
            one.source,
        ),
    )


def freshness(sources: list[SourceOfTable]) -> float | None:
    """Return how old what readers of a table lack may be at most, in seconds; None where that is not known of any source."""
    return max((one.lag for one in sources if one.lag is not None), default=None)


def views(table: TablePublished, stream: Stream | None) -> list[tuple[str, str]]:
    """Return what SQL has beside a table of silver, each with a word about it."""
    name = table.name
    if not name:
        return []
    found = [(f"silver_live.{name}", "newest, lake sql only")]
    options = (stream.tables.get(table.table) if stream else None) or TableOptions()
    # Until a load has counted expectations, there is no such view.
    if options.valid_view and (table.expectations or not options.expect):
        found.append((f"valid.{name}", "rows that meet all"))
    if table.history is not None:
        found.append((f"history.{name}", "former rows too"))
    return found
