"""The demo's screen: a run of Airflow that found nothing new publishes nothing, and is no reason to fail; clients' commands."""

import io
import shlex
from decimal import Decimal
from pathlib import Path

from headrace.terminal import Terminal
from infra.local.airflow import DagRun, TaskRun
from infra.local.demo.bank import OPENING
from infra.local.demo.screen import QUESTION, Addresses, Screen, _adds_up, _short, command_lines


def a_run(name):
    tasks = [TaskRun(name="bronze", state="success", seconds=3.0)]
    return DagRun(run_id=name, state="success", tasks=tasks, assets=[], log="")


def test_a_run_that_published_nothing_has_no_line():
    screen = Screen(Terminal(), Path("bridge.toml"), Path("lake.toml"))
    screen._answers = {
        "LOADS": [{"load": 1, "changes": 7}],
        "RANGES": [{"load": 1, "partition": 0, "first": 0, "last": 6, "records": 7}],
    }
    table = screen._loads([a_run("first"), a_run("second")])
    assert table.row_count == 1


def test_offsets_and_seconds_of_a_long_load_are_whole_on_80_columns():
    console = Terminal(file=io.StringIO(), width=80)
    screen = Screen(console, Path("bridge.toml"), Path("lake.toml"))
    screen._answers = {
        "LOADS": [{"load": 1, "changes": 12_345_678}],
        "RANGES": [{"load": 1, "partition": 12, "first": 111_111_597, "last": 127_127_809, "records": 16_016_212}],
    }
    tasks = [TaskRun(name=name, state="success", seconds=123.0) for name in ("check", "bronze", "silver")]
    run = DagRun(run_id="first", state="success", tasks=tasks, assets=[], log="")

    console.print(screen._loads([run]))

    said = console.file.getvalue()
    assert "111,111,597-127,127,809" in said
    assert "load 1: check 123 s, bronze 123 s, silver 123 s" in said


def test_a_position_is_shown_without_its_epoch():
    assert _short("6b01649e/00000000003d239f8/00000003") == "3d239f8/00000003"


def test_wallets_that_do_not_add_up_are_said():
    right = {"region": "singapore/pay", "wallets": 10, "balance": Decimal(10 * OPENING), "orders": 3,
             "ordered": Decimal("7.50"), "lines": Decimal("7.50"), "wrong": 0}  # fmt: skip
    assert _adds_up(right)
    for changed in ({"wrong": 1}, {"lines": Decimal("7.51")}, {"balance": Decimal("4999.99")}):
        assert not _adds_up(right | changed)


def test_each_line_is_one_command_that_asks_the_same_question_wherever_the_demo_is():
    lines = command_lines(Path("/home/o'neil/a b/lake.toml"), Addresses("c:1", "s:2", "t:3", "m:4"))
    of_duckdb, of_notebook, of_beeline = map(shlex.split, lines)
    for words in (of_duckdb, of_notebook):
        assert words[1] == "-c"
        compile(words[2], "line", "exec")
        assert QUESTION in words[2]
    assert "/home/o'neil/a b/lake.toml" in of_duckdb[2]
    assert "sc://s:2" in of_notebook[2]
    assert of_beeline[-2:] == ["-e", QUESTION]
    assert "jdbc:hive2://t:3/silver" in of_beeline
