"""What is printed: a verdict for each table, and for those that differ where, bounded."""

import io
import json

from headrace.errors import NotConnected
from headrace.terminal import Terminal
from spark_jobs.verify.compare import Difference
from spark_jobs.verify.report import SHOWN, TableReport, as_json, conclude, show


def report(table="public.accounts", **fields) -> TableReport:
    known = {"verdict": "equal", "rows_source": 1500, "rows_lake": 1500, "seconds": 1.25}
    return TableReport(source="jakarta/bank", table=table, **(known | fields))


def shown(*reports: TableReport, failed=()) -> str:
    console = Terminal(file=io.StringIO(), width=160)
    show(list(reports), console)
    conclude(list(reports), dict(failed), console)
    return console.file.getvalue()


def test_equal_tables_are_a_line_each_and_a_sum():
    text = shown(report(), report("public.log", rows_source=0, rows_lake=None))

    lines = [line.split() for line in text.splitlines()]
    assert lines[1] == ["jakarta/bank", "public.accounts", "1,500", "1,500", "equal", "1.2"]
    assert lines[2] == ["jakarta/bank", "public.log", "0", "-", "equal", "1.2"]
    assert text.endswith("equal: 2 tables of 1 source\n")


def test_a_table_that_differs_says_which_keys_and_columns():
    text = shown(
        report(),
        report(
            "public.tellers",
            verdict="not equal",
            differences=[
                Difference(what="differs", key={"bid": "1", "tid": "[7]"}, columns=("balance", "at")),
                Difference(what="missing in the lake", key={"bid": None, "tid": "8"}),
            ],
        ),
        report(
            "public.log", verdict="not equal", differences=[Difference(what="only in the lake", rows=3)], complete=False
        ),
        report("public.gone", verdict="not equal", rows_lake=None, reasons=["the table is missing in the lake"]),
    )

    assert "  1 differs, 1 missing in the lake\n" in text
    assert "  bid=1, tid=[7]: differs in balance, at\n" in text
    assert "  bid=null, tid=8: missing in the lake\n" in text
    assert "  at least 3 only in the lake\n" in text
    assert "  a row without a key: only in the lake (3 rows)\n" in text
    assert "  the table is missing in the lake\n" in text
    assert text.endswith("3 of 4 tables not equal\n")


def test_many_keys_are_cut_on_the_screen_and_whole_in_json():
    many = [Difference(what="missing in the lake", key={"id": str(number)}) for number in range(SHOWN + 5)]
    result = report(verdict="not equal", differences=many)

    text = shown(result)
    machine = json.loads(as_json([report(), result], {}))

    assert "  and 5 more (--json lists them)\n" in text
    assert text.count("id=") == SHOWN
    assert machine["equal"] is False
    assert [table["equal"] for table in machine["tables"]] == [True, False]
    assert machine["tables"][1]["differences"][0] == {
        "what": "missing in the lake",
        "key": {"id": "0"},
        "columns": [],
        "rows": 1,
    }
    assert len(machine["tables"][1]["differences"]) == SHOWN + 5


def test_what_is_not_captured_is_a_line_and_sources_that_failed_are_named_with_the_reason():
    uncaptured = [report(f"public.t{number}", verdict="not captured", rows_lake=None) for number in range(SHOWN + 2)]
    text = shown(report(), *uncaptured)
    assert "jakarta/bank: not captured: public.t0, public.t1," in text
    assert " and 2 more\n" in text
    assert text.endswith("equal: 1 table of 1 source\n")
    assert json.loads(as_json([report(), *uncaptured], {}))["equal"] is True

    failed = {"london/bank": NotConnected("no answer", hint="Start the edge.")}
    text = shown(report(), failed=failed)
    assert "london/bank: not compared: no answer. Start the edge.\n" in text
    assert text.endswith("1 source not compared, or not all of it\n")
    machine = json.loads(as_json([report()], failed))
    assert machine["equal"] is False
    assert machine["failed"] == [{"source": "london/bank", "error": "no answer", "hint": "Start the edge."}]
