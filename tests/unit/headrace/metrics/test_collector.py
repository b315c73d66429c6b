"""Figures become Prometheus's metrics: by their declared names, one series for each source, nothing for what is not known."""

from dataclasses import dataclass

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headrace import __version__
from headrace.metrics.collector import (
    FiguresCollector,
    Rate,
    Seconds,
    counter,
    gauge,
    histogram,
    names,
    states,
    worked_out,
)


@dataclass(slots=True)
class Figures:
    done: int = counter("done_total", "Things done.")
    room: float | None = gauge("room_bytes", "Room left.")
    state: str = states("state", "What it is at.", ("starting", "running"))
    took: Seconds = histogram("took_seconds", "How long it took.")  # noqa: RUF009
    note: str = ""

    @property
    @worked_out("doubled", "Twice as many.")
    def doubled(self):
        return 2 * self.done


def scraped(**figures):
    text = FiguresCollector("headrace_test", Figures, lambda: figures).text().decode()
    return {
        (sample.name, *sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_source_has_its_series():
    figures, two = Figures(), Figures()
    figures.done, two.done, two.state = 3, 4, "running"

    result = scraped(one=figures, two=two)

    assert result["headrace_test_done_total", "one"] == 3
    assert result["headrace_test_done_total", "two"] == 4
    assert result["headrace_test_doubled", "two"] == 8
    assert result["headrace_test_state", "one", "starting"] == 1
    assert result["headrace_test_state", "starting", "two"] == 0
    assert result["headrace_test_state", "running", "two"] == 1
    assert result["headrace_test_build_info", __version__] == 1


def test_what_is_not_known_is_not_shown():
    figures = Figures()
    assert ("headrace_test_room_bytes", "one") not in scraped(one=figures)
    figures.room = 0
    assert scraped(one=figures)["headrace_test_room_bytes", "one"] == 0


def test_durations_fall_into_buckets_that_add_up():
    figures = Figures()
    for seconds in (0.0005, 0.001, 0.003, 1000):
        figures.took.add(seconds)

    result = scraped(one=figures)

    assert result["headrace_test_took_seconds_bucket", "0.001", "one"] == 2
    assert result["headrace_test_took_seconds_bucket", "0.002", "one"] == 2
    assert result["headrace_test_took_seconds_bucket", "0.004", "one"] == 3
    assert result["headrace_test_took_seconds_bucket", "+Inf", "one"] == 4
    assert result["headrace_test_took_seconds_count", "one"] == 4
    assert result["headrace_test_took_seconds_sum", "one"] == pytest.approx(1000.0045)


def test_every_declared_name_is_told():
    reported = {
        f"headrace_test_{name}"
        for name in ("done_total", "room_bytes", "state", "took_seconds", "doubled", "build_info", "held")
    }
    assert names("headrace_test", Figures) == reported


def test_a_rate_follows_what_is_counted_and_fades_when_nothing_is():
    now = [100.0]
    rate = Rate(lambda: now[0])
    for _ in range(600):
        now[0] += 0.1
        rate.add(50)
    assert rate.read() == pytest.approx(500, rel=0.02)
    now[0] += 60
    assert rate.read() < 2
