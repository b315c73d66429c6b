"""M10: the thread of a dead edge is known by a note in the state folder, and it alone is ended."""

import errno
import logging
import os

import pytest

from edge.mysql.errors import ServerIdTaken
from edge.mysql.replication import check_server_id, note_dump_thread, noted_dump_thread


class Server:
    """A server that was started at some second, with a replica 77 whose dump thread is number 12."""

    is_mariadb, release = False, (9, 7, 4)

    def __init__(self, started=1000):
        self.now, self.uptime = started + 500, 500
        self.ended = []

    def value(self, query):
        return self.now if "unix_timestamp" in query else 1

    def rows(self, query):
        if query.startswith("kill"):
            self.ended.append(query)
            return []
        if "Uptime" in query:
            return [("Uptime", str(self.uptime))]
        if query == "show replicas":
            return [(77, "headrace", 0, 1, "")]
        return [(11, "u", "h", None, "Query", 0, "", None), (12, "u", "h", None, "Binlog Dump GTID", 900, "", None)]


def test_the_thread_that_was_noted_is_ended_and_no_other(tmp_path):
    server = Server()
    with pytest.raises(ServerIdTaken):
        check_server_id(server, 77, noted_dump_thread(tmp_path, server))
    note_dump_thread(tmp_path, server, 11)
    with pytest.raises(ServerIdTaken):
        check_server_id(server, 77, noted_dump_thread(tmp_path, server))
    assert server.ended == []

    note_dump_thread(tmp_path, server, 12)
    # The next process looks later, by a clock that was corrected.
    server.now, server.uptime = server.now + 63, server.uptime + 60
    check_server_id(server, 77, noted_dump_thread(tmp_path, server))
    assert server.ended == ["kill 12"]


def test_numbers_of_before_the_servers_start_are_of_other_connections(tmp_path):
    note_dump_thread(tmp_path, Server(), 12)
    assert noted_dump_thread(tmp_path, Server()) == 12
    assert noted_dump_thread(tmp_path, Server(started=1060)) == 0


def test_a_note_that_cannot_be_read_or_written_is_none(tmp_path, monkeypatch, caplog):
    server = Server()
    (tmp_path / "dump-thread.json").write_text("{}")
    with caplog.at_level(logging.WARNING):
        assert noted_dump_thread(tmp_path, server) == 0
    assert "is not read" in caplog.text

    def full(_descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING):
        note_dump_thread(tmp_path, server, 12)
    assert "the server's thread 12 is not noted" in caplog.text
