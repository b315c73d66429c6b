"""The status as a person reads it: a line a source that fits 80 columns, and below it what needs words."""

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table

from headrace.status.answer import Answer, Cost, DeliveryStatus, SourceStatus, cost_of, cost_of_all

#: From this many columns on, positions are shown whole, and when an edge was heard.
_WIDE = 120
#: A lag from here on is shown in yellow, and in red, in seconds.
_YELLOW, _RED = 10.0, 60.0
#: Sources whose costs are shown; `--json` has all.
_SHOWN_COSTS = 10
#: From this share of what may be in flight on, distance limits the source.
_FULL = 0.8
_LEGEND = "[dim]read, accept, commit: each behind the source's log. log: what it keeps.[/]"
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
        parts.append(_LEGEND)
    return Group(*parts)


def console() -> Console:
    """Return where it is printed."""
    return Console(highlight=False)


def _head(answer: Answer) -> str:
    if not answer.running:
        return f"[bold]{answer.part}[/], [red]no answer[/]: {escape(answer.reason)}. What is durable:"
    state = "[green]ready[/]" if answer.ready else "[bold red]not ready[/]"
    reason = "" if answer.ready or not answer.reason else f": {escape(answer.reason)}"
    return f"[bold]{answer.part}[/] {escape(answer.version)} at {escape(answer.address)}, {state}{reason}"


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


def _delivery_cells(delivery: DeliveryStatus) -> list[str]:
    return [
        escape(delivery.delivery),
        f"[{_STYLES.get(delivery.state, 'yellow')}]{escape(delivery.state)}[/]",
        _count(delivery.records_per_second),
        _count(delivery.pending),
        _lag(delivery.oldest_pending_seconds),
        _count(delivery.dead_lettered),
        _count(delivery.assigned_partitions),
    ]


def _delivery_words(answer: Answer) -> list[str]:
    return [
        f"[yellow]{escape(delivery.delivery)}:[/] {escape(each)}"
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
        table.add_row(f"  {escape(name)}", *_cost_cells(cost))
    return table


def _cost_cells(cost: Cost) -> list[str]:
    ratio = cost.in_flight_ratio
    flight = "-" if ratio is None else f"[{'yellow' if ratio >= _FULL else 'default'}]{ratio:.0%}[/]"
    return [
        cores(cost.cpu_cores),
        size(cost.memory_bytes),
        size(cost.wan_bytes_per_second),
        size(cost.kafka_bytes_per_second),
        flight,
    ]


def _refused(answer: Answer) -> list[str]:
    """Return a line for each sender whose inputs were refused."""
    by_sender: dict[str, list[str]] = {}
    for each in answer.refused:
        by_sender.setdefault(each.sender, []).append(f"{each.door} {each.count}")
    return [
        f"[yellow]{escape(sender or 'a sender without a name')}:[/] inputs refused since the start: {escape(', '.join(counts))}"
        for sender, counts in by_sender.items()
    ]


def _cells(answer: Answer, source: SourceStatus, *, wide: bool) -> list[str]:
    first = [escape(source.source), _state(source), _position(source.position, wide=wide)]
    bridge = answer.part == "bridge"
    if not answer.running:
        return [*first, (source.committed_at or "-") if bridge else size(source.retained_wal_bytes)]
    cells = [
        *first,
        _count(source.records_per_second),
        _lag(source.captured_lag_seconds),
        _lag(source.accepted_lag_seconds),
        *([_lag(source.committed_lag_seconds)] if bridge else []),
        size(source.retained_wal_bytes),
        size(source.spool_bytes),
    ]
    return [*cells, duration(source.heard_seconds)] if bridge and wide else cells


def _state(source: SourceStatus) -> str:
    """Return the state; that of the edge, where the bridge is well and the edge is not."""
    state = source.state
    if state == "serving" and source.edge_state not in {None, "capturing"}:
        state = f"edge: {source.edge_state}"
    return f"[{_STYLES.get(state, 'yellow')}]{escape(state)}[/]"


def _words(answer: Answer) -> list[str]:
    lines = []
    for source in answer.sources:
        texts = [source.reason, *source.warnings]
        lines += [f"[yellow]{escape(source.source)}:[/] {escape(each)}" for each in texts if each]
    return lines


def _position(position: str | None, *, wide: bool) -> str:
    """Return a position, on a narrow screen without its epoch and zeros in front."""
    if position is None:
        return "-"
    if wide:
        return position
    _, commit, ordinal = position.split("/")
    return f"{commit.lstrip('x0') or '0'}/{ordinal.lstrip('0') or '0'}"


def _lag(seconds: float | None) -> str:
    text = duration(seconds)
    if seconds is None or seconds < _YELLOW:
        return text
    return f"[{'red' if seconds >= _RED else 'yellow'}]{text}[/]"


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
