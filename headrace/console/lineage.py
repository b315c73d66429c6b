"""A table's lineage as a picture: from its sources' databases by edge, bridge, Kafka, bronze and silver to what is made of it.

Inline SVG. Every node has its state, in colour and as a sign; the connection from edge to bridge has that of the interconnect. Of
many sources those with the worst state are drawn. Names come from sources: all texts are escaped, and too long ones are
shortened. Colours come from the style sheet by class. Called by the page of a table.

dbt's models that read a table, by the manifest that dbt leaves of each run: a source of its project is that table (`headrace lake
sources --dbt`), or they read a model that does. A manifest that is too large, or is none, is shown as such in place of models.
"""

import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from markupsafe import Markup

from headrace.configuration.bridge import Stream, topic_of
from headrace.console import hops
from headrace.console.bridges import SourceSeen
from headrace.console.lake_view import LakeView, TablePublished
from headrace.console.plots import SIGNS, source_link
from headrace.formats import UNREADABLE
from headrace.status.answer import SourceStatus
from headrace.status.table import duration

#: From the worst down.
_ORDER = ("bad", "warn", "unknown", "idle", "ok")
_OF_TABLE = {"published": "ok", "stopped": "bad"}
#: Sources that are drawn, and partitions that are named.
_MOST_SOURCES, _MOST_PARTITIONS = 5, 4
#: Units of the picture: width, columns, and a node.
_WIDTH, _COLUMNS = 1184, 7
_NODE_WIDTH, _NODE_HEIGHT, _PITCH = 147, 58, 70
_STEP = (_WIDTH - _NODE_WIDTH) / (_COLUMNS - 1)
#: Characters of a node's name and of its detail.
_LONGEST_NAME, _LONGEST_DETAIL = 18, 23


class _Node(NamedTuple):
    column: int
    #: What it is, its name, and a figure or a word.
    kind: str
    name: str
    detail: str
    state: str
    link: str = ""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What the picture shows."""

    table: TablePublished
    lake: LakeView
    sources: Mapping[str, SourceSeen]
    #: The stream in the bridges' file; None where that has none of its name.
    feed: Stream | None
    #: Name of the stream's table in the database `bronze`.
    bronze: str
    #: What is made of the table, such as `history.accounts` in SQL and `dbt.revenue`, with a word about each.
    views: Sequence[tuple[str, str]]
    #: How old what readers of the table lack may be, in seconds; None where that is not known.
    freshness: float | None
    now: float


def picture(facts: Facts) -> Markup:
    """Return the picture."""
    rows = sorted((_row(facts, source) for source in facts.table.positions), key=_badness)
    shown, left = rows[:_MOST_SOURCES], len(rows) - _MOST_SOURCES
    height = max(len(shown), len(facts.views), 1) * _PITCH
    parts: list[Markup] = []
    bronze = _Node(4, "bronze", facts.bronze, "", _worst(row[4].state for row in shown))
    bronze = bronze._replace(detail=next((row[4].detail for row in shown if row[4].state == bronze.state), ""))
    silver = _silver(facts)
    middle = height / 2
    bridges = _bridges(shown, height)
    for number, row in enumerate(shown):
        y = _place(number, len(shown), height)
        database, edge, bridge, kafka, into_bronze, interconnect = row
        hub = bridges[bridge.name][0]
        parts += [
            _link(0, y, y, edge.state),
            _link(1, y, hub, interconnect),
            _link(2, hub, y, kafka.state),
            _link(3, y, middle, into_bronze.state),
            _drawn(database, y),
            _drawn(edge, y),
            _drawn(kafka, y),
        ]
    parts += [_drawn(node, y) for y, node in bridges.values()]
    parts += [_link(4, middle, middle, silver.state), _drawn(bronze, middle), _drawn(silver, middle)]
    for number, (name, word) in enumerate(facts.views):
        y = _place(number, len(facts.views), height)
        kind, _, rest = name.partition(".")
        parts += [_link(5, middle, y, silver.state), _drawn(_Node(6, kind, rest, word, silver.state), y)]
    more = f"and {left} more source{'s' * (left > 1)}" if left > 0 else ""
    text = f"{facts.table.table} comes from {len(rows)} source{'s' * (len(rows) != 1)}; silver is {silver.detail}."
    template = (
        '<svg class="lineage" viewBox="0 0 {width} {height}" role="img"><title>Lineage of {name}</title><desc>{text}</desc>'
        '{inside}<text class="more" x="2" y="{bottom}">{more}</text></svg>'
    )
    return Markup(template).format(  # noqa: S704 - escapes.
        width=_WIDTH,
        height=height + (20 if more else 0),
        name=facts.table.table,
        text=text,
        inside=Markup().join(parts),
        bottom=height + 12,
        more=more,
    )


_Row = tuple[_Node, _Node, _Node, _Node, _Node, str]


def _row(facts: Facts, source: str) -> _Row:
    """Return the nodes of a source up to bronze, and the state of its interconnect."""
    seen = facts.sources.get(source) or SourceSeen(status=SourceStatus(source=source, state="not known"))
    database, edge, interconnect, bridge, kafka = hops.to_kafka(seen)
    bronze = hops.bronze(seen.status, facts.lake, facts.now, is_heard=not seen.problem)
    region, _, name = source.partition("/")
    link = source_link(source)
    return (
        _Node(0, "database", source, database.word, database.state, link),
        _Node(1, "edge", region if name else source, _joined(edge), edge.state, link),
        _Node(2, "bridge", seen.bridge or "no bridge", bridge.word, bridge.state),
        _Node(3, "Kafka", _partitions(facts, source), _joined(kafka), kafka.state),
        _Node(4, "bronze", "", _joined(bronze), bronze.state),
        interconnect.state,
    )


def _joined(hop: hops.Hop) -> str:
    return f"{hop.word}, {hop.figure}" if hop.figure else hop.word


def _partitions(facts: Facts, source: str) -> str:
    """Return the topic and the partitions in which a source's records of the table are."""
    feed = facts.feed
    if feed is None:
        return facts.table.stream
    topic, own = (
        feed.topic or facts.table.stream,
        topic_of(feed.prefix or feed.topic or facts.table.stream, facts.table.table),
    )
    held = (facts.lake.offsets or {}).get(facts.table.stream, {})
    if feed.tables and (facts.table.table in feed.tables or any(name == own for name, _ in held)):
        topic = own
    numbers = feed.sources.get(source, [])
    listed = ", ".join(map(str, numbers[:_MOST_PARTITIONS])) + (", …" if len(numbers) > _MOST_PARTITIONS else "")
    return f"{topic} [{listed}]" if numbers else topic


def _silver(facts: Facts) -> _Node:
    table = facts.table
    state, version = _OF_TABLE.get(table.state, "warn"), "" if table.version is None else f", version {table.version}"
    behind = f", {duration(facts.freshness)} behind" if facts.freshness else ""
    return _Node(5, "silver", table.name or table.table, f"{table.state}{behind or version}", state)


def _bridges(rows: Sequence[_Row], height: float) -> dict[str, tuple[float, _Node]]:
    """Return the bridges by name, each where the middle of its sources is, one below the other."""
    places: dict[str, list[float]] = {}
    nodes: dict[str, _Node] = {}
    for number, row in enumerate(rows):
        places.setdefault(row[2].name, []).append(_place(number, len(rows), height))
        known = nodes.get(row[2].name)
        nodes[row[2].name] = (
            row[2] if known is None or _ORDER.index(row[2].state) < _ORDER.index(known.state) else known
        )
    found, least = {}, 0.0
    for name, of in sorted(places.items(), key=lambda each: sum(each[1]) / len(each[1])):
        y = max(sum(of) / len(of), least + _PITCH / 2)
        found[name], least = (y, nodes[name]), y + _PITCH / 2
    # The last ones may have been pushed out of the picture.
    for name in reversed(found):
        y = min(found[name][0], height - _PITCH / 2)
        found[name], height = (y, nodes[name]), y - _PITCH / 2
    return found


def _badness(row: _Row) -> tuple[int, str]:
    return min(_ORDER.index(state) for state in (*(node.state for node in row[:5]), row[5])), row[0].name


def _worst(states: Iterable[str]) -> str:
    found = set(states)
    return next((state for state in _ORDER if state in found), "unknown")


def _place(number: int, count: int, height: float) -> float:
    """Return the middle of one of some nodes in a column."""
    return height * (number + 0.5) / count


def _link(column: int, y1: float, y2: float, state: str) -> Markup:
    x1, x2 = column * _STEP + _NODE_WIDTH, (column + 1) * _STEP
    half = (x1 + x2) / 2
    path = f"M{x1:.1f},{y1:.1f} C{half:.1f},{y1:.1f} {half:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
    return Markup('<path class="link {}" d="{}"/>').format(state, path)


def _drawn(node: _Node, y: float) -> Markup:
    x, top = node.column * _STEP, y - _NODE_HEIGHT / 2
    template = (
        '<g class="node {state}"><title>{whole}</title><rect x="{x:.1f}" y="{top:.1f}" width="{width}" height="{height}" rx="8"/>'
        '<text class="kind" x="{left:.1f}" y="{first:.1f}">{kind}</text><text class="sign" x="{right:.1f}" y="{first:.1f}"'
        ' text-anchor="end">{sign}</text><text class="name" x="{left:.1f}" y="{second:.1f}">{name}</text>'
        '<text class="detail" x="{left:.1f}" y="{third:.1f}">{detail}</text></g>'
    )
    drawn = Markup(template).format(  # noqa: S704 - escapes.
        state=node.state,
        whole=f"{node.kind} {node.name}: {node.detail}",
        x=x,
        top=top,
        width=_NODE_WIDTH,
        height=_NODE_HEIGHT,
        left=x + 10,
        right=x + _NODE_WIDTH - 9,
        first=top + 17,
        second=top + 34,
        third=top + 49,
        kind=node.kind,
        sign=SIGNS[node.state],
        name=shortened(node.name, _LONGEST_NAME),
        detail=shortened(node.detail, _LONGEST_DETAIL),
    )
    return Markup('<a href="{}">{}</a>').format(node.link, drawn) if node.link else drawn


def shortened(text: str, longest: int) -> str:
    """Return a text of at most so many characters of ordinary width; its end, which distinguishes names, stays."""
    text = "".join(each if each.isprintable() else "�" for each in text[:1000])
    if sum(map(_columns, text)) <= longest:
        return text
    head, tail, left = "", "", longest - 1
    for number in range(len(text)):
        at_end = number % 2 == 0
        each = text[-1 - number // 2] if at_end else text[number // 2]
        if _columns(each) > left:
            break
        left -= _columns(each)
        head, tail = (head, each + tail) if at_end else (head + each, tail)
    return f"{head}…{tail}"


def _columns(character: str) -> int:
    """Return how many ordinary characters are as wide as one."""
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


#: Beside the lake's file; how much of it is read and shown.
MANIFEST = "dbt/target/manifest.json"
_MOST_BYTES, _MOST_MODELS, _LONGEST_MODEL = 64_000_000, 5, 200
#: The databases of a lake whose tables are made of one of its own.
_DATABASES = ("silver", "silver_live", "valid", "history", "full_history")


class _Needs(msgspec.Struct):
    nodes: list[str] = []


class _Settings(msgspec.Struct):
    materialized: str = ""


class _Model(msgspec.Struct):
    name: str = ""
    resource_type: str = ""
    depends_on: _Needs = msgspec.field(default_factory=_Needs)
    config: _Settings = msgspec.field(default_factory=_Settings)


class _Source(msgspec.Struct):
    schema: str = ""
    identifier: str = ""


class _Manifest(msgspec.Struct):
    nodes: dict[str, _Model]
    sources: dict[str, _Source]


class DbtModels:
    """What the manifest has; a file that is not there has no models."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._mark: Any = None
        self._manifest: _Manifest | None = None
        self._problem = ""

    def of(self, name: str) -> tuple[tuple[str, str], ...]:
        """Return the models that read a table, by its name in SQL, as the picture of lineage has them: nearest first."""
        self._read()
        if self._problem:
            return (("dbt.manifest.json", self._problem),)
        if self._manifest is None or not name:
            return ()
        readers = defaultdict(list)
        for key, node in self._manifest.nodes.items():
            for needed in node.depends_on.nodes:
                readers[needed].append(key)
        reached = [
            key
            for key, source in self._manifest.sources.items()
            if source.schema in _DATABASES and source.identifier.casefold() == name.casefold()
        ]
        models: dict[str, _Model] = {}
        # It grows while it is walked: what reads what was reached is reached.
        seen = set(reached)
        for key in reached:
            model = self._manifest.nodes.get(key)
            if model is not None and model.resource_type == "model":
                models[key] = model
            for reader in readers[key]:
                if reader not in seen:
                    seen.add(reader)
                    reached.append(reader)
        shown = [
            (f"dbt.{node.name[:_LONGEST_MODEL]}", node.config.materialized[:_LONGEST_MODEL]) for node in models.values()
        ]
        if len(shown) > _MOST_MODELS:
            return (*shown[: _MOST_MODELS - 1], ("dbt.…", f"and {len(shown) - _MOST_MODELS + 1} more models"))
        return tuple(shown)

    def _read(self) -> None:
        try:
            if not self._file.is_file():
                self._mark, self._manifest, self._problem = None, None, ""
                return
            stat = self._file.stat()
            mark = stat.st_mtime_ns, stat.st_size, stat.st_ino
            if mark == self._mark:
                return
            self._manifest = None
            if stat.st_size > _MOST_BYTES:
                self._problem = f"is larger than {_MOST_BYTES // 1_000_000} MB"
            else:
                self._manifest, self._problem = msgspec.json.decode(self._file.read_bytes(), type=_Manifest), ""
            self._mark = mark
        except OSError as error:
            self._mark, self._problem = None, f"cannot be read: {error.strerror or type(error).__name__}"
        except UNREADABLE:
            self._mark, self._problem = mark, "is no manifest of dbt's"
