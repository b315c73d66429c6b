"""Plans and requests on disk: whole after a crash, in order, and of one source and epoch."""

from io import StringIO

import pytest

from edge.observability.figures import Figures
from edge.postgres.snapshot_table import named
from edge.snapshot.active_plan import FEWEST, MOST, ActivePlan, ChunkSize
from edge.snapshot.plan import Plan
from edge.snapshot.store import Request, SnapshotStore, as_dict, as_table
from headrace.errors import NeedsOperator
from headrace.status.answer import SnapshotStatus, snapshot_of
from headrace.terminal import Terminal


@pytest.fixture
def folder(tmp_path):
    return SnapshotStore(tmp_path, "a/b")


def test_requests_take_effect_in_the_order_in_which_they_were_left(folder):
    for kind in ("snapshot", "pause", "cancel", "resume"):
        folder.request(Request(kind=kind, tables=["s.t"] if kind == "snapshot" else []))
    control = ActivePlan(folder, 5)
    while (oldest := control.oldest()) is not None:
        control.take(*oldest, oldest[1].tables)

    plan = folder.plan()
    assert folder.waiting() == []
    assert not plan.paused
    assert [(it.name, it.state) for it in plan.tables] == [("s.t", "cancelled")]


def test_asking_twice_for_the_same_copies_once_and_after_its_end_again():
    plan = Plan(source="a/b")
    plan.add_all(["s.t"], where=None, replace=False, now_ms=1)
    plan.add_all(["s.t"], where=None, replace=False, now_ms=2)
    plan.add_all(["s.t"], where="x", replace=False, now_ms=3)
    assert [it.where for it in plan.tables] == [None, "x"]

    plan.tables[0].state = plan.tables[1].state = "done"
    plan.add_all(["s.t"], where=None, replace=False, now_ms=4)
    assert [(it.state, it.asked_ms) for it in plan.tables] == [("waiting", 4)]


def test_in_another_epoch_what_is_unfinished_begins_anew(folder):
    plan = Plan(source="a/b", epoch=5)
    plan.add_all(["s.t"], where=None, replace=False, now_ms=1)
    plan.tables[0].cursor, plan.tables[0].rows, plan.tables[0].state = ["7"], 7, "running"
    folder.save(plan)

    same, other = ActivePlan(folder, 5).plan.tables[0], ActivePlan(folder, 6).plan.tables[0]
    assert (same.cursor, same.rows) == (["7"], 7)
    assert (other.cursor, other.rows, other.state) == (None, 0, "waiting")


@pytest.mark.parametrize("text", ["", "{", '{"source":"a/b","version":9}', '{"source":"c/d"}', '{"source":1}'])
def test_a_plan_that_is_damaged_or_anothers_needs_an_operator(folder, tmp_path, text):
    (tmp_path / "snapshot.json").write_text(text)

    with pytest.raises(NeedsOperator) as found:
        folder.plan()
    assert "snapshot.json" in found.value.message
    assert found.value.hint


def test_a_damaged_request_is_removed_and_the_others_stay(folder, tmp_path, caplog):
    folder.request(Request(kind="pause"))
    (tmp_path / "snapshot-requests" / "0.json").write_text("""{"version": 1, "kind": "card = '4929-1234'"}""")

    assert [request.kind for _, request in folder.waiting()] == ["pause"]
    assert len(list((tmp_path / "snapshot-requests").iterdir())) == 1
    assert "0.json is damaged and was removed: request it again: ValidationError at " in caplog.text
    assert "4929" not in caplog.text


def test_status_tells_no_keys_of_rows():
    plan = Plan(source="a/b")
    plan.add_all(["s.t"], where=None, replace=False, now_ms=1)
    plan.tables[0].cursor, plan.tables[0].again = ["secret"], [["secret"]]

    assert "secret" not in str(as_dict(plan, []))


@pytest.mark.parametrize(("width", "rows"), [(1, MOST), (1_000, 1_048), (1_000_000, FEWEST)])
def test_chunks_grow_and_shrink_with_the_width_of_rows(width, rows):
    size = ChunkSize(1 << 20)
    for _ in range(10):
        size.read(size.rows, size.rows * width)

    assert size.rows == rows


def test_a_condition_is_shown_to_nobody():
    """S12: it may hold values of rows, and went to headquarters."""
    plan = Plan(source="a/b")
    plan.add_all(["s.t"], where="card = '4929-1234'", replace=False, now_ms=1)
    plan.add_all(["s.u"], where=None, replace=False, now_ms=1)
    console = Terminal(width=200, file=StringIO())
    console.print(as_table(plan, []))
    shown = as_dict(plan, [])
    assert "s.t (by a condition)" in console.file.getvalue()
    assert [each["conditional"] for each in shown["tables"]] == [True, False]
    assert "4929" not in console.file.getvalue() + str(shown)


def test_headquarters_receives_how_far_the_table_is_that_is_copied_now():
    plan = Plan(source="a/b")
    assert snapshot_of(plan.figures()) is None
    plan.add_all(("s.first", "s.second", "s.third"), where=None, replace=False, now_ms=1)
    plan.tables[0].state = "done"
    assert plan.tables[1].estimate == -1
    assert snapshot_of(plan.figures()) == SnapshotStatus(table="s.second", rows=0, rows_per_second=0.0, tables=2)
    plan.tables[1].state, plan.tables[1].rows, plan.tables[1].estimate = "running", 250, 1000
    plan.tables[1].rows_per_second = 50.04
    result = snapshot_of(plan.figures())
    assert (result.rows, result.estimated_rows, result.rows_per_second, result.seconds_left) == (250, 1000, 50.0, 15.0)
    plan.paused = True
    assert snapshot_of(plan.figures()).paused
    assert snapshot_of(plan.figures()).seconds_left is None


def test_q5_a_copy_that_failed_is_reported_until_the_table_is_copied_again_or_its_copy_cancelled():
    """Q5: all was well after a copy had failed."""
    plan, figures = Plan(source="a/b"), Figures()
    figures.failed_copies = plan.failures
    plan.add_all(("s.first", "s.second", "s.third"), where=None, replace=False, now_ms=1)
    assert figures.warnings == []
    for table in plan.tables:
        table.state, table.problem = "failed", "it is not published"
    assert figures.warnings[0] == "the copy of s.first failed: it is not published"
    assert (figures.warned_count, len(figures.for_batch()["warnings"]) > 100) == (3, True)
    plan.add_all(["s.first"], where=None, replace=False, now_ms=1)
    plan.cancel(["s.second"], 1)
    assert figures.warnings == ["the copy of s.third failed: it is not published"]
    plan.cancel([], 1)
    assert figures.warnings == []


@pytest.mark.parametrize(
    "figures",
    [
        {"snapshot_table": "s.t"},
        {"snapshot_table": 3, "snapshot_rows": 1},
        {"snapshot_table": "s.t", "snapshot_rows": "x"},
    ],
)
def test_progress_that_an_edge_of_another_release_sends_otherwise_is_not_shown(figures):
    assert snapshot_of(figures) is None


def test_the_tables_of_a_request_are_resolved_and_planned_in_as_many_steps_as_there_are():
    """With 6,000 tables the log stopped for seconds while one request was taken."""
    names = [_Name(f"s.t{number}") for number in range(2_000)]
    plan = Plan(source="a/b")
    for _ in range(2):
        plan.add_all([*names, names[0]], where=None, replace=True, now_ms=1, restart=True)
    plan.cancel(list(names), 2)
    plan.add_all(names, where=None, replace=True, now_ms=3)
    assert [(it.name, it.asked_ms) for it in plan.tables] == [(name, 3) for name in names]
    assert _Name.compared < 20 * len(names)

    database = _Publication(["s.a", "s.b", "s.part1", "s.part2"])
    assert named(database, "p", ["s.b", "s.root", "s.gone", "s.a"]) == ["s.b", "s.part1", "s.part2", "s.gone", "s.a"]
    assert named(database, "p", ["s.a", "s.b"]) == ["s.a", "s.b"]
    assert database.statements == 3


class _Name(str):
    """A name that counts how often it is compared."""

    __slots__ = ()
    compared = 0

    def __eq__(self, other):
        _Name.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


class _Publication:
    """The catalog of a publication, with one table that it carries by its partitions."""

    def __init__(self, names):
        self._names, self.statements = names, 0

    def rows(self, _statement, *arguments):
        self.statements += 1
        if arguments == ("p",):
            return [(name,) for name in self._names]
        listed, _ = arguments
        return [("s.root", name) for name in ("s.part1", "s.part2") if "s.root" in listed]


def test_a_request_leaves_out_tables_that_a_waiting_one_with_the_same_options_names(folder):
    """A copy that had begun in between began again."""

    def left(*tables, kind="snapshot", replace=True):
        folder.request_once(Request(kind=kind, tables=list(tables), replace=replace, restart=replace))
        return [request.tables for _, request in folder.waiting()]

    assert left("s.a", "s.b") == [["s.a", "s.b"]]
    assert left("s.a") == [["s.a", "s.b"]]
    assert left("s.b", "s.c") == [["s.a", "s.b"], ["s.c"]]
    assert left("s.a", replace=False)[2:] == [["s.a"]]
    assert left()[3:] == [[]]
    assert left()[3:] == [[]]
    # Behind the end of the copies that wait, the next is another one.
    folder.request(Request(kind="cancel", tables=["s.a"]))
    assert left("s.a", "s.c")[5:] == [["s.a", "s.c"]]
