"""Maintenance next to loads that never end: when it is due, one at a time, and what fails ends no load (L15)."""

import logging
from threading import Event

from headrace.errors import Retryable
from spark_jobs.maintenance import background, maintain
from spark_jobs.maintenance.maintain import MaintainReport
from tests.waiting import eventually


def test_l15_loads_do_not_wait_for_maintenance_nor_end_with_it(monkeypatch, caplog):
    # given maintenance that takes long, and then fails
    began, may_end, calls = Event(), Event(), []

    def compact(*_):
        calls.append("compact")
        began.set()
        assert may_end.wait(60)
        raise Retryable("another writer")

    monkeypatch.setattr(maintain, "compact", compact)
    monkeypatch.setattr(maintain, "maintain", lambda *_: calls.append("maintain") or MaintainReport(stream="bank"))
    monkeypatch.setattr(background, "_COMPACT_EVERY", 3)
    with background.Upkeep(None, None, "bank") as beside:
        # when loads go on
        for _ in range(10):
            beside.after_load()
        # then it began once, and they did not wait
        assert began.wait(60)
        assert calls == ["compact"]
        # when it has failed, the next one is due, and a day has passed
        may_end.set()
        eventually(beside._running.done, 60)
        monkeypatch.setattr(background, "_VACUUM_EVERY", 0.0)
        beside.after_load()
    # then old files are removed too, and the failure is in the log
    assert calls == ["compact", "maintain"]
    assert ("spark_jobs.maintenance.background", logging.WARNING, "another writer") in [
        (record.name, record.levelno, record.getMessage().rpartition(": ")[2]) for record in caplog.records
    ]
