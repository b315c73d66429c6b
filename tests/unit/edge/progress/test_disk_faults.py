"""What the edge keeps on disk, where the disk is full, fails, or has no descriptors left, or it is killed at a system call.

E3, E12, E13 and E16 were of this kind. For each file: it is whole, old or new; private; nothing that depends on a write that
failed has happened; and the next write brings all of it.
"""

import errno
import os

import pytest

from edge.mysql.snapshot_decoder import SnapshotOrdinals
from edge.session import CaptureSession
from edge.snapshot.active_plan import ActivePlan
from edge.snapshot.store import Request, SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace import files
from headrace.errors import NeedsOperator, NoSpace
from tests.unit.edge.delivery.test_window import position
from tests.unit.edge.mysql import test_checkpoint as gtids
from tests.unit.edge.progress.disk import CALLS, ERRORS, SOURCE


@pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", CALLS)
class TestTheEdgeWaits:
    """Nothing is consumed by a write that failed, and all goes on by itself when the disk takes it."""

    @pytest.mark.parametrize(("engine", "before"), [("mariadb", "0-1-"), ("mysql", f"{gtids.UUID}:1-")])
    def test_progress_of_mysql(self, tmp_path, disk, call, error, engine, before):
        edge = gtids.Edge(tmp_path, engine, f"{before}10")
        edge.read(11, 900)
        disk.failing = (call, 0, error)
        edge.progress.save_now()
        edge.progress.save_now()
        confirmed = edge.progress.confirmed & 0xFFFFFFFF

        disk.failing = ("", 0, None)
        edge.progress.save_now()

        assert confirmed == 600
        assert edge.durable == (f"{before}11", 900)

    def test_progress_of_postgresql(self, processes, disk, call, error):
        edge = processes()
        edge.put(1)
        (delivery,) = edge.send().values()
        edge.outbox.accepted(delivery)
        disk.failing = (call, 0, error)
        edge.progress.save_now()
        confirmed = edge.progress.confirmed

        disk.failing = ("", 0, None)
        edge.progress.save_now()

        assert confirmed == 1
        assert edge.state.read(SOURCE).position == position(1)

    def test_a_snapshot_that_is_asked_for(self, tmp_path, disk, call, error):
        folder = SnapshotStore(tmp_path, SOURCE)
        folder.request(Request(kind="snapshot", tables=["s.t"]))
        control = ActivePlan(folder, 7)
        disk.failing = (call, 0, error)
        control.take(*control.oldest(), ["s.t"])
        assert [it.name for it in control.plan.tables] == ["s.t"]
        assert control.oldest() is None
        with pytest.raises(NoSpace):
            control.started(control.plan.tables[0], 5, None)
        control.ended(control.plan.tables[0], "failed", "x")
        control.save_rest()
        assert len(folder.waiting()) == 1

        disk.failing = ("", 0, None)
        control.save_due(1e9)

        assert folder.waiting() == []
        assert [(it.name, it.state) for it in folder.plan().tables] == [("s.t", "failed")]

    def test_ordinals(self, tmp_path, disk, call, error):
        ordinals = SnapshotOrdinals(tmp_path)
        disk.failing = (call, 0, error)
        with pytest.raises(NoSpace):
            ordinals.take(7, 10)

        disk.failing = ("", 0, None)

        assert ordinals.take(7, 10) == 0
        assert SnapshotOrdinals(tmp_path).take(7, 1) >= 10


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO], ids=errno.errorcode.get)
def test_a_request_that_cannot_be_read_now_is_kept_and_those_behind_it_wait(tmp_path, monkeypatch, error):
    """E16."""
    folder = SnapshotStore(tmp_path, SOURCE)
    folder.request(Request(kind="snapshot", tables=["s.t"]))
    folder.request(Request(kind="cancel"))

    def refused(_path):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_bytes", refused)
        with pytest.raises(NoSpace):
            folder.waiting()

    assert [request.kind for _, request in folder.waiting()] == ["snapshot", "cancel"]


def test_what_only_a_person_can_change_is_an_operators_matter(tmp_path, disk):
    disk.failing = ("open", 0, errno.EROFS)
    with pytest.raises(NeedsOperator, match="Read-only"):
        files.write_private(tmp_path / "a.json", b"x")


def test_leaving_the_database_succeeds_whatever_the_snapshot_leaves_undone(tmp_path):
    """E13."""
    closed = []

    class Part:
        def close(self):
            closed.append(self)
            raise NoSpace("full")

    class Session:
        def close(self):
            closed.append(self)

    class Figures:
        database_connected = 1

    capture = object.__new__(CaptureSession)
    capture._snapshots, capture._session, capture._figures = Part(), Session(), Figures()
    capture._history = TableHistory(tmp_path, SOURCE)
    with pytest.raises(NoSpace, match="full"):
        capture.close()

    assert len(closed) == 2
