"""Copies of altered tables: requested before the record is sent, and made once; then nothing is reported (L7, T14)."""

import json
import struct

import pytest

from edge.postgres.snapshot_decoder import SnapshotDecoder
from edge.postgres.snapshot_table import SnapshotTable
from edge.snapshot.plan import Plan
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace.errors import NoSpace
from tests.unit.edge.mysql import events
from tests.unit.edge.mysql.test_snapshot_decoder import FIELDS, Stream
from tests.unit.edge.postgres.messages import (
    EPOCH,
    Column,
    Log,
    begin,
    commit,
    insert,
    relation,
    type_name,
)
from tests.unit.edge.snapshot.histories import BEFORE, KEY, SOURCE, catalog, opened, schemas, session, waiting

COPY = "'headrace edge snapshot public.accounts --replace'"


def test_copy_is_asked_for_before_the_record_is_passed_on_and_clears_the_warning(tmp_path, monkeypatch):
    known, altered = catalog(id=1, note=2), catalog(id=1, memo=2)
    old, new = (1000, BEFORE, insert(1, "a")), (2000, relation(KEY, Column("memo")), insert(1, "a"))
    session(tmp_path, old, catalog_of=known)

    # Where the disk takes no request, the record does not pass, and the next session finds the alteration again.
    def full(*_):
        raise NoSpace("full")

    with monkeypatch.context() as patch:
        patch.setattr(SnapshotStore, "request", full)
        with pytest.raises(NoSpace):
            session(tmp_path, new, catalog_of=altered, copies=True)
    assert TableHistory(tmp_path, SOURCE).warnings == {}
    assert schemas(session(tmp_path, new, catalog_of=altered, copies=True))[0][1] is not None
    ((_, request),) = SnapshotStore(tmp_path, SOURCE).waiting()

    assert (request.tables, request.replace, request.restart) == (["public.accounts"], True, True)
    warned = {}
    history = TableHistory(tmp_path, SOURCE, warned=warned)
    assert COPY in warned["copy of public.accounts"]
    history.copied("public.accounts", 0)
    assert warned
    history.copied("public.accounts", 1 << 60)
    assert warned == TableHistory(tmp_path, SOURCE).warnings == {}


@pytest.mark.parametrize("kind", ["table", "label"])
def test_copy_that_the_disk_refused_is_asked_for_by_the_next_session_of_the_same_process(tmp_path, monkeypatch, kind):
    """L7: the sessions of a process share one history; what a session could not write is found by the next one."""
    history = opened(tmp_path, copies=True)
    old = relation(KEY, Column("mood", 90000))
    former = Log(history=history, catalog_of=catalog(id=1, mood=2))
    former.transaction(type_name(90000, "mood"), old, insert(1, "sad"), commit_lsn=1000, end=1010)
    history.labels({"mood": {"1": "sad"}})

    def alter():
        history.begin(EPOCH, 1000)
        history.labels({"mood": {"1": "blue" if kind == "label" else "sad"}})
        renamed = old if kind == "label" else relation(KEY, Column("temper", 90000))
        log = Log(history=history, catalog_of=catalog(id=1, mood=2, temper=2))
        log.transaction(type_name(90000, "mood"), renamed, insert(2, "sad"), commit_lsn=2000, end=2010)
        return [it.value for it in log.records()]

    with monkeypatch.context() as patch:
        patch.setattr("headrace.files.write_private", refused)
        with pytest.raises(NoSpace):
            alter()
    (found,) = schemas(alter())

    assert len(found[1]) == 1
    assert waiting(tmp_path) == [["public.accounts"]]
    assert list(TableHistory(tmp_path, SOURCE).warnings) == ["public.accounts"]


def refused(*_):
    raise NoSpace("full")


def test_a_copy_that_is_under_way_begins_again():
    plan = Plan(source=SOURCE)
    plan.add_all(["t"], where=None, replace=True, now_ms=1)
    plan.tables[0].cursor, plan.tables[0].rows, plan.tables[0].state = ["4"], 4, "running"

    plan.add_all(["t"], where=None, replace=True, now_ms=2)
    assert plan.tables[0].cursor == ["4"]
    plan.add_all(["t"], where=None, replace=True, now_ms=3, restart=True)

    assert [(it.cursor, it.rows, it.state) for it in plan.tables] == [(None, 0, "waiting")]


def snapshot_table(announced):
    return SnapshotTable(
        oid=int.from_bytes(announced[1:5], "big"),
        publication_oid=1,
        count=2,
        selected="",
        key=(0,),
        key_names=("id",),
        compared=(),
        source="",
        row_filter=None,
        messages=(announced,),
        shape="",
    )


def test_what_a_copy_of_a_postgresql_table_finds_where_it_begins_needs_no_other_one(tmp_path):
    history = opened(tmp_path, copies=True)
    log = Log(history=history, catalog_of=catalog(id=1, note=2, memo=2), kind=SnapshotDecoder)
    log.transaction(BEFORE, insert(1, "a"), commit_lsn=1000, end=1010)
    log.feed(begin(2000))
    copied = relation(KEY, Column("memo"))
    log.decoder.truncate(snapshot_table(copied))
    log.feed(commit(2000, 2010))

    assert waiting(tmp_path) == []
    assert history.warnings == {}
    assert [rewritten for _, rewritten in schemas([it.value for it in log.records()])] == [
        None,
        ["column note was renamed to memo"],
    ]


def test_what_a_copy_of_a_mariadb_table_finds_where_it_begins_needs_no_other_one(tmp_path):
    """The log and the catalog describe a table alike."""
    renamed = (FIELDS[0], FIELDS[1]._replace(name="memo"))
    history = TableHistory(tmp_path, SOURCE, copies=True)
    history.begin(1, 0)
    former = Stream(tmp_path, history=history)
    former.feed(events.mariadb_gtid(1, 46), events.table_map(*renamed), events.rows(23, 2, IMAGE), events.xid(140))
    stream = Stream(tmp_path, history=history)
    stream.feed(events.mariadb_gtid(2, 182), events.xid(200))
    stream.decoder.truncate(stream.copied)

    assert waiting(tmp_path) == []
    assert history.warnings == {}
    values = [json.loads(value) for value in stream.batcher.values]
    assert [value["rewritten"] for value in values if "tableChanges" in value] == [["column memo was renamed to note"]]


IMAGE = b"\0" + struct.pack("<i", 1) + struct.pack("<H", 1) + b"s"
