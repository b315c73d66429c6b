"""S15: any table's owner could end each load that printed the table's name, and write to the operator's terminal."""

import io

import pytest

from headrace.errors import NotConnected
from headrace.printable import printable
from headrace.terminal import Terminal
from spark_jobs import load
from spark_jobs.bronze.load import BronzeReport
from spark_jobs.query import published_tables
from spark_jobs.silver.load import SilverReport
from spark_jobs.verify import report as verify_report
from spark_jobs.verify.compare import Difference, Range
from tests.unit.headrace.test_terminal import HOSTILE, is_plain


def _load(out, bad):
    raw = BronzeReport(stream=bad, topic=bad, records=1, tables={bad: {0: (0, 1)}}, quarantined={bad: 1})
    current = SilverReport(stream=bad, load=1, ranges={bad: (bad, bad)}, changes={bad: 1}, waiting={bad: 1})
    load.show(out, load.Report(bronze=raw, silver=current, lag={bad: 1.0}))
    for kind in ("problems", "failed", "warnings"):
        load.show(out, load.Report(silver=SilverReport(stream=bad, **{kind: {bad: bad}})))


def _tables(out, bad):
    quality = {bad: {"problem": bad}}
    published_tables.show(
        out,
        [
            published_tables.ListedTable(
                stream=bad, table=bad, name=bad, state="published", age_seconds=None, rows=1, reason=bad, keyed=False,
                columns={bad: bad}, positions={}, published_at=None, quality=quality,
            )
        ],
    )  # fmt: skip


def _verified(out, bad):
    wrong = verify_report.TableReport(
        source=bad, table=bad, verdict="not equal", place=bad, reasons=[bad], treated={bad: bad},
        differing=[Range(column=bad, first=1, last=2, rows_source=1, rows_lake=2)],
        differences=[Difference(what="differs", key={bad: bad}, columns=(bad,))],
    )  # fmt: skip
    verify_report.show([wrong, verify_report.TableReport(source=bad, table=bad, verdict="not captured")], out)
    verify_report.conclude([wrong], {bad: NotConnected(bad, hint=bad)}, out)
    shown = io.StringIO()
    with verify_report.progress(Terminal(file=shown, force_terminal=True, width=200)) as bars:
        bars.show(bad)
        bars.table(bad, bad, 1, 2)


@pytest.mark.parametrize("bad", HOSTILE)
@pytest.mark.parametrize("show", [_load, _tables, _verified])
def test_s15_reports_show_names_as_they_are_or_by_codes(show, bad):
    out = Terminal(file=io.StringIO(), width=1000, force_terminal=False)
    show(out, bad)
    text = out.file.getvalue()
    assert is_plain(text)
    assert printable(bad) in text
