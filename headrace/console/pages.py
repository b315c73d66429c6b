"""The pages: each takes what is known now, without waiting for any server, and renders a template.

With `X-Fragment: 1` a page is rendered without its frame: the script asks for that every two seconds and updates what changed.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response

from headrace import __version__
from headrace.configuration.bridge import Stream as Feed
from headrace.configuration.lake import Stream
from headrace.console import charts, lake_view, lineage, metrics, sources
from headrace.console.bridges import Bridges, BridgesView
from headrace.console.charts import History, Prometheus
from headrace.console.hops import NAMES
from headrace.console.lake import Lake, Retention
from headrace.console.lake_view import LakeView
from headrace.console.lineage import Facts
from headrace.console.plots import FILTERS
from headrace.console.sources import IN_WORDS, STATES, Files, SourceRow, counts, rows
from headrace.console.table_detail import TableDetails
from headrace.lake.own_tables import bronze_name
from headrace.status.answer import cost_of_all

#: Seconds of a chart, by the name in the address.
RANGES = {"15m": 900.0, "1h": 3600.0, "2h": 7200.0, "24h": 86_400.0, "7d": 604_800.0}
#: What the console's own memory has.
OWN_RANGES = ("15m", "1h", "2h")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the pages are made of."""

    bridges: Bridges
    lake: Lake
    details: TableDetails
    retention: Retention
    history: History
    prometheus: Prometheus | None
    #: The stream of each source, by the bridges' file.
    streams: dict[str, str]
    #: Streams as the bridges' file and the lake's have them.
    feeds: Mapping[str, Feed]
    loaded: Mapping[str, Stream]
    files: Files
    #: Whether there is a login, so that a page can offer to log out.
    has_login: bool


class Pages:
    """A method for each page."""

    def __init__(self, known: Known) -> None:
        self._known = known
        #: Figures since the start.
        self.history = known.history
        self._charts = charts.Charts(known.history, known.prometheus)
        self._templates = jinja2.Environment(
            loader=jinja2.PackageLoader("headrace.console"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._templates.filters.update(FILTERS)

    def overview(self, request: Request) -> Response:
        """Show all sources on their path."""
        bridges, lake, found = self._now()
        asked = sources.asked(request.query_params)
        shown = sources.listed(found, asked)
        return self._page(
            request,
            "overview.html",
            bridges=bridges,
            lake=lake,
            counted=counts(found),
            hops=[_together(name, [row.hops[place].state for row in found]) for place, name in enumerate(NAMES)],
            total=len(found),
            rate=sum(each.status.records_per_second or 0.0 for each in found),
            cost=cost_of_all(
                (each.answer for each in bridges.bridges if each.answer is not None and not each.problem),
                (each.status for each in found if each.hops[3].state == "ok"),
            ),
            lag=max((each.status.committed_lag_seconds or 0.0 for each in found), default=None),
            published=max((one.finished_at for one in lake.streams.values() if one.finished_at), default=None),
            asked=asked,
            shown=shown,
            streams=sorted({each.stream for each in found if each.stream}),
            trouble=[each for each in found if each.state == "bad"][:5],
            stopped=[table for table in lake.tables if table.state == "stopped"],
        )

    def source(self, request: Request) -> Response:
        """Show one source."""
        bridges, lake, found = self._now()
        name = f"{request.path_params['region']}/{request.path_params['name']}"
        row = next((each for each in found if each.source == name), None)
        if row is None:
            return self._page(request, "missing.html", status=404, what=f"No source {name}")
        span = self._span(request)
        plots, notice = self._charts.of_source(name, RANGES[span])
        return self._page(
            request,
            "source.html",
            row=row,
            bridges=bridges,
            lake=lake,
            steps=sources.steps_of_source(row, lake, self._known.files),
            published=lake.streams[row.stream].positions.get(name) if row.stream in lake.streams else None,
            reached={step: lake.reached.get((step, name)) for step in ("bronze", "silver")},
            tables=lake.tables_of(row.stream, name),
            verdicts=lake.verdicts_of_source(row.stream, name),
            files=self._known.files,
            plots=plots,
            notice=notice,
            span=span,
            spans=self._spans(),
        )

    def loads(self, request: Request) -> Response:
        """Show the loads over time."""
        lake = self._known.lake.view()
        span = request.query_params.get("range", "24h")
        span = span if span in RANGES else "24h"
        stream = request.query_params.get("stream", "")
        found = [load for load in lake.loads if stream in {"", load.stream}]
        return self._page(
            request,
            "loads.html",
            lake=lake,
            loads=[load for load in found if load.finished_at.timestamp() > time.time() - RANGES[span]][:100],
            older=len(found),
            plots=charts.of_loads(found, RANGES[span]),
            stream=stream,
            streams=sorted({load.stream for load in lake.loads}),
            kafka=self._known.retention.view(),
            span=span,
            spans=list(RANGES),
            files=self._known.files,
        )

    def tables(self, request: Request) -> Response:
        """Show the tables with their age and the last verdict of verification."""
        lake = self._known.lake.view()
        text = request.query_params.get("q", "").strip()
        state = request.query_params.get("state", "")
        shown = [
            table
            for table in lake.tables
            if text.casefold() in f"{table.stream} {table.table} {table.name}".casefold() and state in {"", table.state}
        ]
        return self._page(
            request,
            "tables.html",
            lake=lake,
            lines=[
                sources.TableLine(table, sources.verdict(lake, table), sources.step_of_table(table, self._known.files))
                for table in shown[:500]
            ],
            total=len(lake.tables),
            matching=len(shown),
            text=text,
            state=state,
            states=sorted({table.state for table in lake.tables}),
            files=self._known.files,
        )

    def table(self, request: Request) -> Response:
        """Show one table."""
        stream, name = request.query_params.get("stream", ""), request.query_params.get("name", "")
        lake = self._known.lake.view()
        table = lake.table(stream, name)
        if table is None:
            return self._page(request, "missing.html", status=404, what=f"No table {name} of stream {stream}")
        bridges, span = self._known.bridges.view(), request.query_params.get("range", "24h")
        span = span if span in RANGES else "24h"
        detail = self._known.details.find(table)
        lines = lake_view.sources_of_table(table, lake, bridges)
        freshness = lake_view.table_freshness(lines)
        return self._page(
            request,
            "table.html",
            table=table,
            lake=lake,
            detail=detail,
            step=sources.step_of_table(table, self._known.files),
            freshness=freshness,
            lines=lines[: lake_view.MOST_SOURCES],
            total=len(lines),
            verdict=sources.verdict(lake, table),
            lineage=lineage.picture(
                Facts(
                    table=table,
                    lake=lake,
                    sources=bridges.sources,
                    feed=self._known.feeds.get(stream),
                    bronze=bronze_name(stream, self._known.loaded),
                    views=[*lake_view.sql_views(table, self._known.loaded.get(stream)), *detail.models],
                    freshness=freshness,
                    now=bridges.at,
                )
            ),
            plots=charts.of_versions(detail.versions, RANGES[span]),
            span=span,
            spans=list(RANGES),
        )

    def trends(self, request: Request) -> Response:
        """Show lag, rate and freshness over time, of all."""
        lake = self._known.lake.view()
        span = self._span(request)
        plots, notice = self._charts.of_all(sorted(lake.streams), RANGES[span])
        return self._page(
            request, "trends.html", lake=lake, plots=plots, notice=notice, span=span, spans=self._spans(),
            prometheus=self._known.prometheus,
        )  # fmt: skip

    def metrics(self, _request: Request) -> Response:
        """Return what the lake's tables hold, for Prometheus."""
        bridges, lake, found = self._now()
        return PlainTextResponse(
            metrics.text(bridges, lake, self._known.retention.view(), found), media_type=metrics.MEDIA_TYPE
        )

    def missing(self, request: Request, _error: Exception) -> Response:
        """Answer a request for a page that does not exist."""
        return self._page(request, "missing.html", status=404, what="No such page")

    def failed(self, _request: Request, _error: Exception) -> Response:
        """Answer when a page could not be made: the log has the traceback."""
        return PlainTextResponse("The console has a defect here; its log has the details.\n", 500)

    def login(self, problem: str) -> str:
        """Return the page that asks for the token."""
        return self._templates.get_template("login.html").render(problem=problem, theme="", version=__version__)

    def _now(self) -> tuple[BridgesView, LakeView, list[SourceRow]]:
        bridges, lake = self._known.bridges.view(), self._known.lake.view()
        return bridges, lake, rows(bridges, lake, self._known.streams)

    def _span(self, request: Request) -> str:
        span = request.query_params.get("range", "1h")
        return span if span in self._spans() else "1h"

    def _spans(self) -> list[str]:
        return list(RANGES) if self._known.prometheus is not None else list(OWN_RANGES)

    def _page(self, request: Request, template: str, *, status: int = 200, **values: Any) -> Response:
        theme = request.cookies.get("theme", "")
        text = self._templates.get_template(template).render(
            layout="fragment.html" if request.headers.get("x-fragment") else "base.html",
            page={"source.html": "overview", "table.html": "tables"}.get(template, template.removesuffix(".html")),
            theme=theme if theme in {"light", "dark"} else "",
            version=__version__,
            now=time.time(),
            HOPS=NAMES,
            IN_WORDS=IN_WORDS,
            STATES=STATES,
            has_login=self._known.has_login,
            **values,
        )
        return HTMLResponse(text, status)


def _together(name: str, states: list[str]) -> tuple[str, str, int]:
    """Return a hop of all sources: its name, its worst state, and how many have that. One not known counts last."""
    state = next((each for each in ("bad", "warn", "ok", "idle", "unknown") if each in states), "unknown")
    return name, state, states.count(state)
