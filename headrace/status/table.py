"""The status as a person reads it: a line a source that fits 80 columns, and below it what needs words."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.status.answer import Answer, Cost, DeliveryStatus, SourceStatus, cost_of, cost_of_all
from headrace.terminal import in_style, styled

#: From this many columns on, positions are shown whole, and when an edge was heard.
_WIDE = 120
#: A lag from here on is shown in yellow, and in red, in seconds.
_YELLOW, _RED = 10.0, 60.0
#: Sources whose costs are shown; `--json` has all.
_SHOWN_COSTS = 10
#: From this share of what may be in flight on, distance limits the source.
_FULL = 0.8
_LEGEND = "read, accept, commit: each behind the source's log. log: what it keeps."
_STYLES = {
    "serving": "green",
    "capturing": "green",
    "delivering": "green",
    "not running": "red",
    "needs an operator": "bold red",
}


def screen(answers: list[Answer], width: int) -> RenderableType:
    """Return what is printed."""
    parts: list[RenderableType] = []
    for answer in answers:
        parts += [_head(answer), _table(answer, wide=width >= _WIDE), *_words(answer)]
        if answer.deliveries:
            parts += [_deliveries(answer), *_delivery_words(answer)]
        parts += _refused(answer)
        parts += [_costs(answer)] if answer.memory_bytes is not None else []
    if any(answer.running for answer in answers):
        parts.append(in_style(_LEGEND, "dim"))
    return Group(*parts)


def _head(answer: Answer) -> Text:
    if not answer.running:
        return styled("[bold]{}[/], [red]no answer[/]: {}. What is durable:", answer.part, answer.reason)
    state = in_style("ready", "green") if answer.ready else in_style("not ready", "bold red")
    reason = "" if answer.ready or not answer.reason else f": {answer.reason}"
    return styled("[bold]{}[/] {} at {}, {}{}", answer.part, answer.version, answer.address, state, reason)


def _table(answer: Answer, *, wide: bool) -> Table:
    bridge = answer.part == "bridge"
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("source", overflow="fold")
    table.add_column("state", overflow="fold")
    table.add_column("position", no_wrap=True)
    running = ["rec/s", "read", "accept", *(["commit"] if bridge else []), "log", "spool"]
    if bridge and wide:
        running.append("heard")
    for name in running if answer.running else ["committed at" if bridge else "log"]:
        table.add_column(name, justify="right", no_wrap=True, min_width=5)
    for source in answer.sources:
        table.add_row(*_cells(answer, source, wide=wide))
    return table


def _deliveries(answer: Answer) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("delivery", "state"):
        table.add_column(name, overflow="fold")
    for name in ("rec/s", "pending", "oldest", "dead", "partitions"):
        table.add_column(name, justify="right", no_wrap=True, min_width=5)
    for delivery in answer.deliveries:
        table.add_row(*_delivery_cells(delivery))
    return table


def _delivery_cells(delivery: DeliveryStatus) -> list[str | Text]:
    return [
        delivery.delivery,
        in_style(delivery.state, _STYLES.get(delivery.state, "yellow")),
        _count(delivery.records_per_second),
        _count(delivery.pending),
        _lag(delivery.oldest_pending_seconds),
        _count(delivery.dead_lettered),
        _count(delivery.assigned_partitions),
    ]


def _delivery_words(answer: Answer) -> list[Text]:
    return [
        styled("[yellow]{}:[/] {}", delivery.delivery, each)
        for delivery in answer.deliveries
        for each in [delivery.reason, *delivery.warnings]
        if each
    ]


def _costs(answer: Answer) -> Table:
    """Return what the part and its sources take, those that take the most first."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("cost", overflow="fold")
    for name in ("cpu", "memory", "WAN/s", "Kafka/s", "in flight"):
        table.add_column(name, justify="right", no_wrap=True, min_width=6)
    if answer.part == "bridge":
        table.add_row("this bridge", *_cost_cells(Cost(answer.cpu_cores, answer.memory_bytes)))
    costs = [(each.source, cost_of(each)) for each in answer.sources]
    costs = [(name, cost) for name, cost in costs if cost.cpu_cores is not None or cost.wan_bytes_per_second]
    if len(costs) > 1:
        shown = {name for name, _ in costs}
        together = cost_of_all([], [each for each in answer.sources if each.source in shown])
        table.add_row(f"{len(costs)} sources, with their edges", *_cost_cells(together))
    costs.sort(key=lambda each: (-(each[1].cpu_cores or 0.0), -(each[1].wan_bytes_per_second or 0.0)))
    for name, cost in costs[:_SHOWN_COSTS]:
        table.add_row(f"  {name}", *_cost_cells(cost))
    return table


def _cost_cells(cost: Cost) -> list[str | Text]:
    ratio = cost.in_flight_ratio
    flight = "-" if ratio is None else in_style(f"{ratio:.0%}", "yellow" if ratio >= _FULL else "default")
    return [
        cores(cost.cpu_cores),
        size(cost.memory_bytes),
        size(cost.wan_bytes_per_second),
        size(cost.kafka_bytes_per_second),
        flight,
    ]


def _refused(answer: Answer) -> list[Text]:
    """Return a line for each sender whose inputs were refused."""
    by_sender: dict[str, list[str]] = {}
    for each in answer.refused:
        by_sender.setdefault(each.sender, []).append(f"{each.door} {each.count}")
    return [
        styled(
            "[yellow]{}:[/] inputs refused since the start: {}", sender or "a sender without a name", ", ".join(counts)
        )
        for sender, counts in by_sender.items()
    ]


def _cells(answer: Answer, source: SourceStatus, *, wide: bool) -> list[str | Text]:
    first: list[str | Text] = [source.source, _state(source), _position(source.position, wide=wide)]
    bridge = answer.part == "bridge"
    if not answer.running:
        return [*first, (source.committed_at or "-") if bridge else size(source.retained_wal_bytes)]
    cells: list[str | Text] = [
        *first,
        _count(source.records_per_second),
        _lag(source.captured_lag_seconds),
        _lag(source.accepted_lag_seconds),
        *([_lag(source.committed_lag_seconds)] if bridge else []),
        size(source.retained_wal_bytes),
        size(source.spool_bytes),
    ]
    return [*cells, duration(source.heard_seconds)] if bridge and wide else cells


def _state(source: SourceStatus) -> Text:
    """Return the state; that of the edge, where the bridge is well and the edge is not."""
    state = source.state
    if state == "serving" and source.edge_state not in {None, "capturing"}:
        state = f"edge: {source.edge_state}"
    return in_style(state, _STYLES.get(state, "yellow"))


def _words(answer: Answer) -> list[Text]:
    lines = []
    for source in answer.sources:
        texts = [source.reason, *source.warnings]
        lines += [styled("[yellow]{}:[/] {}", source.source, each) for each in texts if each]
    return lines


def _position(position: str | None, *, wide: bool) -> str:
    """Return a position, on a narrow screen without its epoch and zeros in front."""
    if position is None:
        return "-"
    if wide:
        return position
    _, commit, ordinal = position.split("/")
    return f"{commit.lstrip('x0') or '0'}/{ordinal.lstrip('0') or '0'}"


def _lag(seconds: float | None) -> str | Text:
    text = duration(seconds)
    if seconds is None or seconds < _YELLOW:
        return text
    return in_style(text, "red" if seconds >= _RED else "yellow")


def duration(seconds: float | None) -> str:
    """Return seconds in at most five characters."""
    if seconds is None:
        return "-"
    for least, unit, each in ((172_800, "d", 86_400), (7_200, "h", 3_600), (120, "m", 60)):
        if seconds >= least:
            return f"{seconds / each:.0f}{unit}"
    if seconds >= 10 or seconds == 0:
        return f"{seconds:.0f}s"
    return f"{seconds:.2f}s" if seconds < 1 else f"{seconds:.1f}s"


def cores(number: float | None) -> str:
    """Return processor cores in at most five characters."""
    if number is None:
        return "-"
    return f"{number:.3f}" if number < 0.1 else f"{number:.2f}" if number < 10 else f"{number:.0f}"


def size(number: float | None) -> str:
    """Return bytes in at most five characters."""
    if number is None:
        return "-"
    value, units = float(number), iter(("", "K", "M", "G", "T", "P"))
    unit = next(units)
    while abs(value) >= 1000 and unit != "P":
        value, unit = value / 1024, next(units)
    return f"{value:.0f}{unit}" if value >= 10 or not unit else f"{value:.1f}{unit}"


def _count(number: float | None) -> str:
    if number is None:
        return "-"
    if number >= 1_000_000:
        return f"{number / 1_000_000:.1f}M"
    if number >= 10_000:
        return f"{number / 1_000:.0f}k"
    return f"{number:.0f}"
