"""Measured figures of the documents come from docs/benchmarks.md: pages point there, and the summaries repeat its numbers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BENCHMARKS = ROOT / "docs" / "benchmarks.md"
PAGES = sorted(page for page in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")] if page != BENCHMARKS)
#: Pages that repeat results, each number as it is there.
SUMMARIES = [ROOT / "README.md", ROOT / "docs" / "comparison.md"]
_NUMBER = r"\d[\d,]*(?:\.\d+)?"
#: What only a measurement can give: a rate, processor time, a percentile.
FIGURE = re.compile(rf"{_NUMBER} (?:changes|rows|records)(?:/s| a second\b)|{_NUMBER} s of CPU|\bp(?:50|99)\b")
#: In a line with such a figure, everything that has a unit.
QUANTITY = re.compile(rf"({_NUMBER})(?= (?:changes/s|rows/s|records/s|MB\b|s\b))")


def sections(text):
    """Return the sections of a page by their headings: a link counts for the section that it is in."""
    return re.split(r"^(?=## )", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL), flags=re.MULTILINE)


def without_a_source(text):
    """Return the headings of sections with measured figures and without a link to the benchmarks."""
    return [
        section.splitlines()[0]
        for section in sections(text)
        if FIGURE.search(section) and "benchmarks.md" not in section
    ]


def unknown(text, measured):
    """Return the quantities in lines with measured figures that the benchmarks do not have."""
    return [
        number
        for line in text.splitlines()
        if FIGURE.search(line)
        for number in QUANTITY.findall(line)
        if not re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d,]|\.\d)", measured)
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_section_with_measured_figures_points_to_the_benchmarks(page):
    assert without_a_source(page.read_text()) == []


@pytest.mark.parametrize("page", SUMMARIES, ids=lambda page: page.name)
def test_a_summary_repeats_the_numbers_of_the_benchmarks(page):
    text = page.read_text()
    assert FIGURE.search(text)
    assert unknown(text, BENCHMARKS.read_text()) == []


def test_a_figure_without_a_source_and_one_that_was_changed_are_found():
    assert without_a_source("# A\n## B\n12,000 changes/s\n## C\np99 5 ms ([b](benchmarks.md))") == ["## B"]
    assert unknown("| 103,334 changes/s, 9 s of CPU, 172 MB |", BENCHMARKS.read_text()) == ["103,334"]
