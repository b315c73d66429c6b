"""What the edge keeps on disk, where the disk is full, fails, or has no descriptors left, or it is killed at a system call.

E3, E12, E13 and E16 were of this kind. For each file: it is whole, old or new; private; nothing that depends on a write that
failed has happened; and the next write brings all of it.
"""

import contextlib
import errno
import os
import shutil
import sqlite3
from collections import Counter

import msgspec
import pytest

from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.snapshot_ordinals import SnapshotOrdinals
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress.checkpoint import State
from edge.progress.record_settings import RecordSettings
from edge.progress.spool import Spool
from edge.session import CaptureSession
from edge.snapshot.active_plan import ActivePlan
from edge.snapshot.plan import Plan
from edge.snapshot.store import Request, SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace import files
from headrace.errors import NeedsOperator, NoSpace
from headrace.position import Position
from tests.unit.edge.delivery.test_window import START, position
from tests.unit.edge.mysql import test_gtid_progress as gtids
from tests.unit.edge.progress.test_checkpoint import checkpoint
from tests.unit.edge.progress.test_spool import full

SOURCE = "jakarta/bank"
CALLS = ["open", "write", "fsync", "replace"]
ERRORS = [errno.ENOSPC, errno.EIO, errno.EMFILE]


class Killed(BaseException):
    """The process ends here: nothing that it would have done after this is done."""


class Disk:
    """The system calls that write, of which one fails; `calls` counts all of them."""

    def __init__(self, patch):
        self.calls = Counter()
        #: The call that fails, which of its kind from 1 on (0 for each), and by which error; None for a kill.
        self.failing = ("", 0, None)
        for name in CALLS:
            patch.setattr(os, name, self._faulty(name, getattr(os, name)))

    def _faulty(self, name, real):
        def call(*arguments, **options):
            self.calls[name] += 1
            failing, number, error = self.failing
            if name == failing and number in {0, self.calls[name]}:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise Killed if error is None else OSError(error, os.strerror(error))
            return real(*arguments, **options)

        return call


@pytest.fixture
def disk(monkeypatch):
    with monkeypatch.context() as patch:
        yield Disk(patch)


class File:
    """One of the files: writes its first or second content, and reads which of them it has."""

    def __init__(self, folder):
        self.folder = folder


class PostgresProgress(File):
    def write(self, number):
        State(self.folder, PostgresCheckpoint).write(checkpoint(Position(7, number, 0), number))

    def read(self):
        return State(self.folder, PostgresCheckpoint).read(SOURCE).position.commit


class MysqlProgress(File):
    def write(self, number):
        found = msgspec.structs.replace(gtids.start("mysql", f"{gtids.UUID}:1-{number + 1}"), offset=number)
        State(self.folder, MysqlCheckpoint).write(found)

    def read(self):
        found = State(self.folder, MysqlCheckpoint).read(SOURCE)
        assert found.gtids.endswith(f":1-{found.offset + 1}")
        return found.offset


class SnapshotPlan(File):
    def write(self, number):
        SnapshotStore(self.folder, SOURCE).save(Plan(source=SOURCE, epoch=number))

    def read(self):
        return SnapshotStore(self.folder, SOURCE).plan().epoch


class SnapshotRequest(File):
    def write(self, number):
        SnapshotStore(self.folder, SOURCE).request(Request(kind="snapshot", tables=["s.t"], where=f"id = {number}"))

    def read(self):
        waiting = SnapshotStore(self.folder, SOURCE).waiting()
        return int(waiting[-1][1].where.removeprefix("id = "))


class MysqlOrdinals(File):
    def write(self, number):
        SnapshotOrdinals(self.folder).take(number, 10)

    def read(self):
        return msgspec.json.decode((self.folder / "snapshot-place.json").read_bytes())["place"]


class SettingsNote(File):
    class Config:
        class source:  # noqa: N801 - as the configuration names it.
            mariadb = mysql = None

        policy = None

    def write(self, number):
        config = self.Config()
        config.records = number
        RecordSettings(self.folder, config).begin(Position.start(7), lambda: 0)

    def read(self):
        settings = [RecordSettings(self.folder, self._config(number))._settings for number in (1, 2)]
        return 1 + settings.index(msgspec.json.decode((self.folder / "records.json").read_bytes())["settings"])

    def _config(self, number):
        config = self.Config()
        config.records = number
        return config


FILES = [PostgresProgress, MysqlProgress, SnapshotPlan, SnapshotRequest, MysqlOrdinals, SettingsNote]


def files_of(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("kind", FILES)
@pytest.mark.parametrize(
    "error", [*ERRORS, None], ids=lambda error: errno.errorcode.get(error, "kill") if error else "kill"
)
def test_a_file_is_whole_and_private_whichever_call_fails_and_the_next_write_succeeds(tmp_path, disk, kind, error):
    faults = 0
    for name in CALLS:
        for number in range(1, 4):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            file = kind(folder)
            former = os.umask(0)
            try:
                file.write(1)
                disk.calls.clear()
                disk.failing = (name, number, error)
                try:
                    file.write(2)
                    failed = False
                except (NoSpace, Killed):
                    failed = True
            finally:
                os.umask(former)
                disk.failing = ("", 0, None)
            faults += failed
            assert {path.stat().st_mode & 0o777 for path in files_of(folder)} == {0o600}
            assert all(path.suffix in {".json"} | ({".new"} if error is None else set()) for path in files_of(folder))
            # Only after the file is in its place may a failure leave the new one.
            late = (name == "fsync" and number == 2) or (name == "open" and number == 2)
            assert file.read() == (1 if failed and not late else 2)
            file.write(2)
            assert file.read() == 2
    assert faults >= len(CALLS)


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


class TestSpool:
    @pytest.mark.parametrize(
        "code", [sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_FSYNC, sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_CANTOPEN]
    )
    def test_a_disk_that_fails_keeps_what_is_there_and_takes_more_later(self, tmp_path, monkeypatch, code):
        spool = Spool(tmp_path, SOURCE, 8 << 20)
        spool.append([(full(1), 100, 1.0)])
        spool.close()

        def refused(*_arguments, **_options):
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = code
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(sqlite3, "connect", refused)
            with pytest.raises(NoSpace):
                spool.append([(full(2), 200, 1.0)])
            with pytest.raises(NoSpace):
                Spool(tmp_path, SOURCE, 8 << 20).open(START, position(1), 100)
        spool.append([(full(2), 200, 1.0)])
        spool.close()
        again = Spool(tmp_path, SOURCE, 8 << 20)
        again.open(START, position(2), 200)

        assert len(again) == 2
        again.close()

    @pytest.mark.parametrize("call", ["open", "fsync"])
    @pytest.mark.parametrize("error", ERRORS, ids=errno.errorcode.get)
    def test_a_spool_that_cannot_be_made_now_leaves_no_file(self, tmp_path, disk, call, error):
        spool = Spool(tmp_path, SOURCE, 8 << 20)
        disk.failing = (call, 0, error)
        with pytest.raises(NoSpace):
            spool.append([(full(1), 100, 1.0)])
        assert files_of(tmp_path) == []

        disk.failing = ("", 0, None)
        spool.append([(full(1), 100, 1.0)])

        assert {path.stat().st_mode & 0o777 for path in files_of(tmp_path)} == {0o600}
        spool.close()

    def test_a_kill_within_a_write_leaves_what_was_durable_before(self, tmp_path):
        """What a kill leaves is the files as they are at that moment."""
        spool = Spool(tmp_path / "now", SOURCE, 64 << 20)
        (tmp_path / "now").mkdir()
        spool.append([(full(1), 100, 1.0)])
        with contextlib.suppress(Killed), spool._file.transaction() as connection:
            for number in range(1, 201):
                connection.execute(
                    "insert into batch select id + ?, first, last, confirm, put_at, checksum, head, body from batch where id = 1",
                    (number,),
                )
                if number % 50 == 0:
                    shutil.copytree(tmp_path / "now", tmp_path / f"killed-{number}")
            raise Killed
        for killed in tmp_path.glob("killed-*"):
            again = Spool(killed, SOURCE, 64 << 20)
            again.open(START, position(1), 100)
            assert len(again) == 1
            again.close()
        spool.close()
