"""The spool, where the disk is full or fails, or the edge is killed within a write."""

import contextlib
import errno
import shutil
import sqlite3

import pytest

from edge.progress.spool import Spool
from headrace.errors import NoSpace
from tests.unit.edge.delivery.test_window import START, position
from tests.unit.edge.progress.disk import ERRORS, SOURCE, Killed, files_of
from tests.unit.edge.progress.test_spool import full


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
