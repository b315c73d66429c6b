"""What a passing test has to say at the end of a run, where its output is captured: `record_property("shown", "...")`."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print it; with several workers their reports bring it along."""
    reports = [*terminalreporter.getreports("passed"), *terminalreporter.getreports("failed")]
    lines = sorted(str(text) for report in reports for name, text in report.user_properties if name == "shown")
    if lines:
        terminalreporter.section("shown by tests")
        for line in lines:
            terminalreporter.line(line)
