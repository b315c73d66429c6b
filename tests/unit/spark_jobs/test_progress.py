"""T11: verify and load print nothing into a file for as long as they run."""

from contextlib import redirect_stderr
from io import StringIO

from headrace.terminal import Terminal
from spark_jobs import load
from spark_jobs.verify import report as verify_report


def test_load_and_verify_write_progress_into_a_file(monkeypatch):
    monkeypatch.setattr("headrace.terminal._EVERY", 0.0)
    out = StringIO()
    with redirect_stderr(out):
        with load.show_progress(Terminal(stderr=True)) as tell:
            tell("silver", 3, 199)
        with verify_report.progress(Terminal(stderr=True)) as shown:
            shown.show("jakarta/bank: taking a snapshot")
            shown.table("jakarta/bank", "public.accounts", 1000, 250000)
    assert out.getvalue().splitlines() == [
        "silver: 3 of 199 tables",
        "jakarta/bank: taking a snapshot",
        "jakarta/bank public.accounts: 1,000 of about 250,000 rows",
    ]
