"""The chunk-and-watermark algorithm, over interleavings of writers, reader, log and crashes.

Each run is drawn from a number of its own, so that one that fails can be run again alone.
"""

import random
from pathlib import Path

import pytest

from edge.snapshot.plan import Plan
from edge.snapshot.store import Request
from headrace.errors import NeedsOperator
from headrace.schema import COPY_BEGINS, COPY_ENDS
from tests.unit.edge.snapshot.model import STALE, Consumer, Database, Edge, Folder

ROWS, RUNS = 10, 1000
WRITES = ["insert", "update", "update", "move", "delete", "truncate"]
MOVES = ["move", "move", "insert", "delete", "update"]


class Run:
    """One interleaving."""

    def __init__(self, number, *, writes=WRITES, replace=False, crashes=True):
        self.chance = random.Random(number)
        self.writes, self.crashes, self.quiet = writes, crashes, False
        self.database, self.consumer = Database(ROWS), Consumer()
        plan = Plan(source="a/b", epoch=1)
        plan.add_all(["public.t"], where=None, replace=replace, now_ms=1)
        self.folder = Folder(plan)
        self.begin(0, 0)

    def begin(self, place, acknowledged):
        self.edge = Edge(self.database, self.consumer, self.folder, place, self.meanwhile)
        self.edge.acknowledged = acknowledged

    @property
    def plan(self):
        return self.edge.control.plan.tables[0]

    def meanwhile(self):
        """Let others write, or what they wrote be seen."""
        if self.quiet:
            self.database.visible = len(self.database.log)
            return
        chance = self.chance
        for _ in range(chance.choice((0, 0, 1, 1, 2))):
            kind = chance.choice(self.writes)
            if kind == "truncate" and chance.random() < 0.9:
                continue
            key, other = chance.randrange(ROWS + 4), chance.randrange(ROWS + 4)
            self.database.write(kind, key, other, whole=chance.random() < 0.5, hidden=chance.random() < 0.3)

    def go(self, steps):
        for now in range(steps):
            self.step(float(now))
        self.finish()

    def step(self, now):
        """Let each part do something, or nothing; now and then the edge dies."""
        chance, edge = self.chance, self.edge
        if self.crashes and chance.random() < 0.05:
            self.crash()
            return
        if self.crashes and chance.random() < 0.05:
            edge.control.plan.paused = not edge.control.plan.paused
            edge.control.save()
        if self.crashes and chance.random() < 0.05:
            edge.fail_next = True
        self.meanwhile()
        edge.copying.run_due(now)
        if chance.random() < 0.8:
            edge.work()
        for _ in range(chance.randrange(9)):
            edge.decode()
        if chance.random() < 0.5:
            edge.acknowledged = chance.randint(edge.acknowledged, max(edge.acknowledged, edge.decoded))

    def crash(self):
        """Be left with some of what was not acknowledged, and read the log again from somewhere before that."""
        edge, records = self.edge, self.consumer.records
        safe = sum(place <= edge.acknowledged for (place, _), _ in records)
        self.consumer.lose(self.chance.randint(safe, len(records)))
        # What the plan relies on and the log behind it are confirmed together at the soonest.
        chance, acknowledged = self.chance, edge.acknowledged
        place = chance.choice((acknowledged, chance.randint(0, acknowledged)))
        # The edge may be down for long, and read much of the log before anything else happens.
        for _ in range(chance.choice((0, 0, 20))):
            self.meanwhile()
        self.begin(place, acknowledged)
        for _ in range(chance.choice((0, 0, 40))):
            self.edge.decode()

    def finish(self):
        """Let everything come to its end, with nobody writing any more."""
        self.quiet, now = True, 1e6
        self.edge.control.plan.paused = self.edge.fail_next = False
        for _ in range(500):
            now += 1
            edge = self.edge
            edge.copying.run_due(now)
            edge.work()
            edge.decode()
            edge.acknowledged = max(edge.acknowledged, edge.decoded)
            if self.plan.state == "done" and edge.decoded == len(self.database.log):
                return
        raise AssertionError(f"it does not end: {self.plan}")


@pytest.mark.parametrize(("writes", "replace"), [(WRITES, False), (WRITES, True), (MOVES, False)])
def test_after_a_snapshot_consumers_hold_exactly_the_rows_of_the_source_whatever_happened_meanwhile(writes, replace):
    """E4: rows that move while a table is not watched, since the edge was down, paused, or lost its second connection."""
    for number in range(RUNS):
        run = Run(number, writes=writes, replace=replace)
        run.go(run.chance.randrange(60 if writes is WRITES else 120))

        held = run.consumer.rows()
        if not replace:
            held.pop(STALE, None)
        assert held == run.database.now, f"run {number}"
        # Consumers can wait for all of it: marks come ahead of the first row and behind the last (L34).
        kinds = run.consumer.of_copy()
        assert (kinds[0], kinds[-1]) == (COPY_BEGINS, COPY_ENDS), f"run {number}"
        assert not run.folder.plan().tables[0].marks_open, f"run {number}"


def test_without_a_crash_no_row_is_read_twice_unless_it_was_told_in_part():
    for number in range(RUNS):
        run = Run(number, writes=["insert", "update", "move", "delete"], crashes=False)
        run.go(run.chance.randrange(60))

        reads = [entry.key for _, entry in run.consumer.records if entry.kind == "read"]
        in_part = {entry.key for entry in run.database.log if entry.row is not None and entry.row[1] is None}
        assert {key for key in reads if reads.count(key) > 1} <= in_part, f"run {number}"


def test_a_snapshot_that_was_cut_off_goes_on_behind_what_was_acknowledged():
    run = Run(7, writes=["update"], crashes=False)
    run.quiet = True
    now = 0.0
    while run.plan.chunks < 2:
        now += 1
        run.edge.copying.run_due(now)
        run.edge.work()
        run.edge.decode()
        run.edge.acknowledged = run.edge.decoded
    assert run.plan.state == "running"
    cursor = int(run.plan.cursor[0])
    before = len(run.consumer.records)
    run.begin(run.edge.acknowledged, run.edge.acknowledged)
    run.finish()

    behind = [entry.key for _, entry in run.consumer.records[before:] if entry.kind == "read"]
    assert behind
    assert min(behind) > cursor


@pytest.mark.parametrize("number", range(20))
def test_a_copy_under_way_begins_again_where_its_table_was_altered(number):
    """L7: rows that were read before have the values of before."""
    run = Run(number, writes=["insert", "update", "move", "delete"], replace=True, crashes=False)
    now = 0.0
    while not run.consumer.records or run.consumer.records[-1][1].kind != "read":
        now += 1
        run.step(now)
    assert run.plan.state == "running"
    again = Request(kind="snapshot", tables=["public.t"], replace=True, restart=True)
    run.folder.requests.append((Path("request"), again))
    before = len(run.consumer.records)
    while run.folder.requests:
        now += 1
        run.step(now)
    run.finish()

    kinds = [entry.kind for _, entry in run.consumer.records[before:]]
    assert "truncate" in kinds
    assert "read" in kinds[kinds.index("truncate") :]
    assert run.consumer.rows() == run.database.now


def test_a_row_that_moved_without_all_of_its_columns_is_noted_durably_before_the_log_goes_on():
    run = Run(1, writes=[], crashes=False)
    run.edge.copying.run_due(1.0)
    run.edge.work()
    run.edge.copying.run_due(2.0)
    run.database.write("move", 8, 12, whole=False, hidden=False)
    run.edge.decode()
    # As the session does before anything of the round is sent.
    run.edge.copying.save_moved()

    assert run.folder.plan().tables[0].again == [["12"]]


def test_a_session_is_left_whatever_the_disk_makes_of_the_plan(monkeypatch):
    """E13: why the session ends is not hidden by what cannot be noted, and its thread ends."""
    run = Run(7, writes=["update"], crashes=False)
    run.quiet, now = True, 0.0
    # Until all that is left is to hear that the end of the copy has arrived.
    while COPY_ENDS not in run.consumer.of_copy():
        run.edge.acknowledged = run.edge.decoded
        now += 1
        run.edge.copying.run_due(now)
        run.edge.work()
        run.edge.decode()
    stopped = []

    def refuse(_plan):
        raise NeedsOperator("the disk is read-only", hint="-")

    monkeypatch.setattr(run.folder, "save", refuse)
    monkeypatch.setattr(run.edge, "stop", stopped.append)
    run.edge.acknowledged = run.edge.decoded

    run.edge.copying.close()

    assert len(stopped) == 1
