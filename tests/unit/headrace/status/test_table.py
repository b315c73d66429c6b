"""The status fits the screen, and says in words what a number cannot."""

import pytest

from headrace.status.answer import Answer, DeliveryStatus, SourceStatus, refused_inputs
from headrace.status.table import duration, screen, size
from headrace.terminal import Terminal

POSITION = "692010c0/0000000001a2b3c8/00000012"


def printed(answer, width):
    console = Terminal(width=width, no_color=True)
    with console.capture() as capture:
        console.print(screen([answer], width))
    return capture.get()


def bridge(**changes):
    source = {
        "source": "jakarta/bank",
        "state": "serving",
        "position": POSITION,
        "records_per_second": 123_456.7,
        "captured_lag_seconds": 99.9,
        "accepted_lag_seconds": 0.213,
        "committed_lag_seconds": 86_400.0,
        "retained_wal_bytes": 999 << 20,
        "spool_bytes": 5 << 20,
        "heard_seconds": 0.4,
        "edge_state": "capturing",
    } | changes
    sources = [SourceStatus(**source), SourceStatus(source="singapore/ledger", state="needs an operator")]
    return Answer(part="bridge", running=True, version="0.1.0", address="10.0.0.1:9188", ready=True, sources=sources)


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_every_line_fits_and_a_source_has_one(width):
    lines = printed(bridge(), width).splitlines()
    assert max(map(len, lines)) <= width
    (line,) = [line for line in lines if line.startswith("jakarta/bank")]
    cells = line.split()
    assert cells[1:2] + cells[3:9] == ["serving", "123k", "100s", "0.21s", "24h", "999M", "5.0M"]
    assert cells[2] == (POSITION if width >= 120 else "1a2b3c8/12")


def test_costs_are_shown_of_all_and_of_those_that_cost_the_most():
    sources = [
        SourceStatus(
            source=f"a/{number}",
            state="serving",
            edge_cpu_cores=number / 100,
            edge_memory_bytes=80 << 20,
            wan_bytes_per_second=1e6 * number,
            kafka_bytes_per_second=3e6 * number,
            in_flight_ratio=number / 30,
        )
        for number in range(1, 31)
    ]
    sources.append(SourceStatus(source="a/elsewhere", state="elsewhere", edge_memory_bytes=1 << 40))
    answer = Answer(part="bridge", running=True, ready=True, cpu_cores=1.25, memory_bytes=99 << 20, sources=sources)
    lines = printed(answer, 80).splitlines()
    start = next(place for place, line in enumerate(lines) if line.startswith("cost"))
    cells = [line.split() for line in lines[start:-1]]
    assert cells[0] == ["cost", "cpu", "memory", "WAN/s", "Kafka/s", "in", "flight"]
    assert cells[1] == ["this", "bridge", "1.25", "99M", "-", "-", "-"]
    assert cells[2] == ["30", "sources,", "with", "their", "edges", "4.65", "2.3G", "443M", "1.3G", "100%"]
    assert cells[3] == ["a/30", "0.30", "80M", "29M", "86M", "100%"]
    assert [row[0] for row in cells[3:]] == [f"a/{number}" for number in range(30, 20, -1)]
    assert max(map(len, lines)) <= 80


def test_an_edge_that_is_not_well_shows_in_the_line_and_says_why_below():
    said = printed(bridge(edge_state="database down", warnings=["database 10.0.0.7:5432/bank cannot be reached"]), 120)
    assert "edge: database down" in said
    assert "jakarta/bank: database 10.0.0.7:5432/bank cannot be reached" in said


def test_who_sent_what_was_refused_is_named_once_with_the_counts_of_its_doors():
    answer = bridge()
    senders = {f"a/{number}": 1 for number in range(100)}
    answer.refused = refused_inputs({"batch": {"oslo/rogue": 7, "\x1b[2J": 3}, "amqp": {"oslo/rogue": 2} | senders})
    assert len(answer.refused) == 20
    lines = printed(answer, 120).splitlines()
    assert "oslo/rogue: inputs refused since the start: batch 7, amqp 2" in lines
    assert "\x1b" not in "".join(lines)


def test_where_nobody_answers_it_says_so_and_shows_what_is_durable():
    source = SourceStatus(source="jakarta/bank", state="not running", position=POSITION, retained_wal_bytes=2048)
    said = printed(Answer(part="edge", running=False, reason="nobody answers at 127.0.0.1:9187", sources=[source]), 80)
    assert "no answer: nobody answers at 127.0.0.1:9187" in said
    assert said.splitlines()[-1].split() == ["jakarta/bank", "not", "running", "1a2b3c8/12", "2.0K"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0, "0s"),
        (0.004, "0.00s"),
        (0.25, "0.25s"),
        (9.96, "10.0s"),
        (61, "61s"),
        (300, "5m"),
        (9000, "2h"),
    ],
)
def test_a_duration_takes_few_characters(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "-"), (0, "0"), (999, "999"), (1000, "1.0K"), (16 << 20, "16M"), (3 << 40, "3.0T"), (-5, "-5")],
)
def test_a_size_takes_few_characters(number, text):
    assert size(number) == text


def test_deliveries_have_lines_of_their_own_and_say_who_waits():
    delivery = DeliveryStatus(
        delivery="alerts",
        state="delivering",
        records_per_second=12.0,
        pending=40,
        oldest_pending_seconds=75.0,
        dead_lettered=3,
        assigned_partitions=6,
        warnings=["alerts/jakarta: nobody receives from it"],
    )
    text = printed(Answer(part="bridge", running=True, ready=True, deliveries=[delivery]), 80)

    (line,) = [each for each in text.splitlines() if each.startswith("alerts ")]
    assert line.split() == ["alerts", "delivering", "12", "40", "75s", "3", "6"]
    assert "alerts: alerts/jakarta: nobody receives from it" in text
