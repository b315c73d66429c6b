"""Each file of the state folder is whole and private, old or new, whichever system call fails (E3, E12, E13, E16)."""

import errno
import os

import msgspec
import pytest

from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.snapshot_decoder import SnapshotOrdinals
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.progress.checkpoint import State
from edge.progress.notes import RecordSettings
from edge.snapshot.plan import Plan
from edge.snapshot.store import Request, SnapshotStore
from headrace.errors import NoSpace
from headrace.position import Position
from tests.unit.edge.mysql import test_checkpoint as gtids
from tests.unit.edge.progress.disk import CALLS, ERRORS, SOURCE, Killed, files_of
from tests.unit.edge.progress.test_checkpoint import checkpoint


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
            mariadb = mysql = debezium = None

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
