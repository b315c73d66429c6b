"""Maintenance next to loads that never end: when it is due, one at a time, and what fails ends no load (L15, L43)."""

import logging
from datetime import UTC, datetime, timedelta
from threading import Event
from unittest.mock import Mock

import pytest

from headrace.errors import CorruptInput, Retryable
from spark_jobs import continuous
from spark_jobs.errors import SparkFailed
from spark_jobs.maintenance import maintain
from spark_jobs.maintenance.maintain import MaintainReport
from spark_jobs.query import metastore
from tests.rules.waiting import eventually


@pytest.fixture
def due(monkeypatch):
    """Return what the lake has recorded: whether a table is due, asked before each maintenance."""
    found = [False]
    monkeypatch.setattr(maintain, "is_due", lambda *_: found[0])
    monkeypatch.setattr(continuous, "_COMPACT_EVERY", 3)
    monkeypatch.setattr(metastore, "after_load", lambda *_: None)
    monkeypatch.setattr(continuous, "activate", lambda _: None)
    return found


def ended(upkeep):
    eventually(lambda: upkeep._running is not None and upkeep._running.done(), 60)


def test_l15_loads_do_not_wait_for_maintenance_nor_end_with_it(due, monkeypatch, caplog):
    # given maintenance that takes long, and then fails
    began, may_end, calls = Event(), Event(), []

    def compact(spark, lake, stream, names):
        calls.append(("compact", sorted(names)))
        began.set()
        assert may_end.wait(60)
        raise Retryable("another writer")

    monkeypatch.setattr(maintain, "compact", compact)
    monkeypatch.setattr(
        maintain, "maintain", lambda *_, **how: calls.append("maintain") or MaintainReport(stream="bank")
    )
    with continuous.Upkeep(None, None, "bank") as beside:
        # when loads go on, the first of which looks whether anything is due
        beside.after_load(["public.first"])
        ended(beside)
        for number in range(10):
            beside.after_load([f"public.t{number}"])
        # then it began once, and they did not wait
        assert began.wait(60)
        # and only what changed is compacted
        assert calls == [("compact", ["public.first", "public.t0", "public.t1", "public.t2"])]
        # when it has failed, and a table is due
        may_end.set()
        ended(beside)
        due[0] = True
        beside.after_load([])
    # then old files are removed too, and the failure is in the log
    assert calls[1:] == ["maintain"]
    assert ("spark_jobs.continuous", logging.WARNING, "another writer") in [
        (record.name, record.levelno, record.getMessage().rpartition(": ")[2]) for record in caplog.records
    ]


@pytest.mark.parametrize(("ended", "raised", "tries"), [(True, SparkFailed, 1), (False, CorruptInput, 2)])
def test_a_load_that_goes_on_tries_again_what_passes_unless_its_spark_has_ended(monkeypatch, ended, raised, tries):
    """By a JVM that had ended it tried again for ever."""
    errors = [SparkFailed("the JVM answers no more"), CorruptInput("this does not pass")]
    follow = Mock(side_effect=errors)
    monkeypatch.setattr(continuous, "_follow", follow)
    monkeypatch.setattr(continuous, "has_ended", lambda _: ended)
    for name in ("for_few_changes", "activate"):
        monkeypatch.setattr(continuous, name, Mock())
    with pytest.raises(raised):
        continuous.load(None, None, "bank", every=0.01, stopped=Event(), on_report=print)
    assert follow.call_count == tries


def test_l43_a_process_that_lives_for_a_few_loads_maintains_what_is_due(due, monkeypatch):
    """L43: each restart, and each failed load, began a new day, so old files were never removed."""
    given = []
    monkeypatch.setattr(maintain, "maintain", lambda *_, **how: given.append(how) or MaintainReport(stream="bank"))
    monkeypatch.setattr(maintain, "compact", lambda *_: pytest.fail("nothing was to be compacted yet"))
    stop, registered = Event(), []
    monkeypatch.setattr(metastore, "after_load", lambda *given: registered.append(given[2]))
    with continuous.Upkeep(None, None, "bank") as beside:
        beside.after_load(["public.t"])
    assert given == registered == []
    # when a process begins once a table is due
    due[0] = True
    with continuous.Upkeep(None, None, "bank", stopped=stop.is_set) as beside:
        beside.after_load(["public.t"])
    # then it is maintained at once, and the process's end would end it
    assert [how["older_than"] for how in given] == [continuous._MAINTAIN_EVERY]
    assert not given[0]["stopped"]()
    stop.set()
    assert given[0]["stopped"]()
    # and a metastore knows the versions that it published, whose files stay
    assert registered == ["bank"]


def test_what_is_recorded_of_maintenance_beside_loads_that_never_end_does_not_grow(monkeypatch):
    """Rows of former maintenance went where all tables were maintained at once: of 10,000 tables 3,650,000 a year stayed."""
    forgotten = []
    monkeypatch.setattr(maintain, "_session", lambda _: None)
    monkeypatch.setattr(maintain, "_slices", lambda *_: [])
    monkeypatch.setattr(maintain, "_sweep", lambda *_: None)
    monkeypatch.setattr(maintain.vacuum, "forget_times", lambda *given: forgotten.append(given[3]))
    monkeypatch.setattr(maintain.drop, "remove", lambda *_: None)
    monkeypatch.setattr(maintain.erase, "vacuum", lambda *_: None)
    for day in (timedelta(days=1), timedelta(0)):
        maintain.maintain(None, None, "bank", older_than=day)
    # what is left out was maintained since
    ago = [datetime.now(UTC) - before for before in forgotten]
    assert timedelta(days=1) <= ago[0] < timedelta(days=1, minutes=10)
    assert ago[1] < timedelta(minutes=10)


def test_bronzes_note_is_renewed_ahead_of_the_removal_of_rows_that_would_show_the_same(monkeypatch):
    calls = []
    monkeypatch.setattr(maintain, "_session", lambda _: None)
    monkeypatch.setattr(maintain, "_slices", lambda *_: [["bronze"]])
    for module, name in (
        *((maintain, name) for name in ("_compact", "_vacuum_all", "_sweep")),
        *((maintain.vacuum, name) for name in ("record_times", "forget_times")),
        (maintain.drop, "remove"),
        (maintain.erase, "vacuum"),
    ):
        monkeypatch.setattr(module, name, lambda *_: None)
    monkeypatch.setattr(maintain.erased_records, "empty_again", lambda *_: None)
    monkeypatch.setattr(maintain.sink, "renew", lambda *_: calls.append("renew"))
    monkeypatch.setattr(maintain, "remove_old_records", lambda *_: calls.append("remove"))

    maintain.maintain(None, None, "bank")

    assert calls == ["renew", "remove"]


def test_a_load_that_goes_on_is_planned_for_few_changes_and_its_upkeep_for_many_rows(monkeypatch):
    """It took 51 jobs of Spark for a thousand changes in four tables, and a load of its own 29 (issue 35)."""
    spark, few, stopped = Mock(), Mock(), Event()
    follow = Mock(side_effect=lambda *_, **__: stopped.set())
    upkeep = Mock(return_value=Mock(__enter__=Mock(), __exit__=Mock(return_value=None)))
    monkeypatch.setattr(continuous, "_follow", follow)
    monkeypatch.setattr(continuous, "Upkeep", upkeep)
    monkeypatch.setattr(continuous, "for_few_changes", Mock(return_value=few))
    monkeypatch.setattr(continuous, "activate", activate := Mock())
    continuous.load(spark, Mock(), "bank", every=1, stopped=stopped, on_report=print)
    assert follow.call_args.args[0] is few
    assert upkeep.call_args.args[0] is spark
    activate.assert_called_once_with(few)
