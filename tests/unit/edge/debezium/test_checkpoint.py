"""A checkpoint that fits the server, the properties and the connector, and how it moves."""

import json

import pytest

from edge import agent
from edge.debezium.checkpoint import DebeziumCheckpoint, Mark, place_of
from edge.engine import Adoption, CheckpointChanged
from headrace.errors import NeedsOperator
from headrace.position import Position
from headrace.waiting import Backoff
from tests.unit.edge.debezium import engine_frames

OFFSET = json.dumps({"lsn": 500})


OTHERS = '"table.exclude.list" = "public.t"'


def fingerprint(engine):
    """Return that of an engine's properties."""
    return engine._names.fingerprint()


def checkpoint(**changes):
    """Return one of a source that has read and acknowledged up to 500."""
    fields = {"acknowledged": str(Position.start(1)), "connector": "postgres", "confirmed_place": 500, "stage": "made"}
    fields |= {"system_identifier": engine_frames.SYSTEM, "offset": ("key", OFFSET)}
    return DebeziumCheckpoint(source="jakarta/bank", **fields | changes)


#: Of a session that reads nothing.
SILENT = "line()\nsay(hello(log_end=1234))\nline()"


def test_a_session_knows_where_the_log_ends_before_it_reads(engine):
    source = engine(SILENT)
    session = source.open(checkpoint(properties=fingerprint(source)), 0)
    try:
        assert session.log_end() == 1234
    finally:
        session.close()


@pytest.mark.parametrize(
    ("changes", "stopped_at"),
    [
        pytest.param({"acknowledged": str(Position(1, 599, 3))}, str(Position(1, 599, 3)), id="within a transaction"),
        pytest.param({"confirmed_place": 499, "copy_ahead": True}, None, id="a copy ahead"),
        pytest.param({"acknowledged": str(Position(1, 499, 3))}, "", id="after an unclean stop"),
        pytest.param({}, "", id="before the first acknowledgement"),
        pytest.param(
            {"acknowledged": str(Position(1, 499, 3)), "spooled": str(Position(1, 599, 3))},
            str(Position(1, 499, 3)),
            id="in the spool",
        ),
    ],
)
def test_properties_do_not_change_while_a_transaction_may_be_sent_in_part(engine, tmp_path, changes, stopped_at):
    before = checkpoint(properties=fingerprint(engine("")), **changes)
    if stopped_at is not None:
        note = {"settings": "", "stopped_at": stopped_at}
        (tmp_path / "state" / "records.json").write_text(json.dumps(note))
    with pytest.raises(NeedsOperator, match="properties are others than before"):
        engine("", properties=OTHERS).open(before, 0)
    engine(SILENT).open(before, 0).close()


def test_properties_that_change_between_transactions_are_in_the_checkpoint_before_anything_is_sent_by_them(
    engine, tmp_path
):
    stopped = str(Position(1, 499, 3))
    before = checkpoint(properties=fingerprint(engine("")), acknowledged=stopped)
    (tmp_path / "state" / "records.json").write_text(json.dumps({"settings": "", "stopped_at": stopped}))
    other = engine(SILENT, properties=OTHERS)
    with pytest.raises(CheckpointChanged) as error:
        other.open(before, 0)
    moved = error.value.checkpoint
    assert (moved.position, moved.confirmed, moved.offset) == (before.position, before.confirmed, before.offset)
    other.open(moved, 0).close()


def test_another_server_is_refused_before_anything_is_read_from_it(engine, tmp_path):
    other = engine(
        f"line()\nbegan = open({str(tmp_path / 'began')!r}, 'w')\n"
        "say(hello(system='7000000000000000002'))\nbegan.write(line())"
    )
    before = checkpoint(properties=fingerprint(other))
    with pytest.raises(NeedsOperator) as error:
        other.open(before, 0)
    assert "the server is another one: its system identifier is 7000000000000000002" in error.value.message
    assert (tmp_path / "began").read_text() == ""
    # The same server at another address, or a copy of it.
    engine(SILENT).open(before, 0).close()


def test_a_checkpoint_of_another_connector_and_an_adoption_are_refused(engine):
    with pytest.raises(NeedsOperator, match="'mysql'"):
        engine("").open(checkpoint(connector="mysql"), 0)
    with pytest.raises(NeedsOperator, match="cannot be adopted"):
        engine("").initialise(None, Adoption(None), lambda _words: None)


def test_a_checkpoint_whose_offset_names_no_place_is_damaged(engine):
    state = engine("").state
    for connector, offset in (("postgres", "{}"), ("mariadb", OFFSET), ("oracle", OFFSET)):
        state.write(checkpoint(connector=connector, offset=("key", offset)))
        with pytest.raises(NeedsOperator, match="is damaged"):
            state.read("jakarta/bank")
    state.write(checkpoint())
    assert state.read("jakarta/bank") == checkpoint()


def test_the_checkpoint_moves_to_acknowledged_places_alone():
    debezium_checkpoint = DebeziumCheckpoint(
        source="a/b",
        stage="made",
        acknowledged=str(Position(1, 4, 0)),
        connector="postgres",
        confirmed_place=5,
        copy_ahead=False,
        offset=("key", "old"),
    )
    assert debezium_checkpoint.advanced(Position(1, 3, 0), 4, None) == debezium_checkpoint
    moved = debezium_checkpoint.advanced(Position(1, 9, 0), 10, ("key", "new"))
    assert (moved.confirmed, moved.place, moved.position) == (10, "new", Position(1, 9, 0))


def test_an_idle_heartbeat_at_whose_place_more_may_come_is_no_copy_ahead():
    """An edge of SQL Server, Oracle, Db2 or MongoDB that had been idle asked for a copy at its next start."""
    lsns = "00000027:00000758:0005", "00000027:00000ac0:0007"
    first, second = (("key", json.dumps({"commit_lsn": lsn, "change_lsn": None})) for lsn in lsns)
    places = [place_of("sqlserver", offset) for _, offset in (first, second)]
    fields = {"connector": "sqlserver", "confirmed_place": places[0], "offset": first}
    idle = checkpoint(acknowledged=str(Position(1, places[0] - 1, 2)), **fields).advanced(
        Position.start(1), places[1] - 1, second
    )
    assert (idle.confirmed, idle.offset, idle.copy_ahead) == (places[1] - 1, second, False)


def test_what_was_acknowledged_before_the_next_session_is_in_the_checkpoint_with_its_offset(engine):
    source = engine(SILENT)
    made = checkpoint(properties=fingerprint(source))
    source._marks.add(Mark(900, 1, ("key", '{"lsn":900}')))
    session = source.open(made, 0)
    try:
        # As Progress.restart writes it: the session is open, and has not begun.
        moved = source.advanced(made, Position(made.position.epoch, 899, 0), 900)
    finally:
        session.close()
    assert (moved.confirmed, moved.place) == (900, '{"lsn":900}')


def test_an_engine_that_dies_at_each_record_ends_the_edge_at_last_and_nothing_is_confirmed(
    engine, tmp_path, monkeypatch
):
    monkeypatch.setattr(agent, "_EQUAL_FAILURES", 3)
    monkeypatch.setattr(agent, "Backoff", lambda **_seconds: Backoff(first=0.01, longest=0.01))
    starts = tmp_path / "starts"
    source = engine(
        f"open({str(starts)!r}, 'a').write('x')\nline()\nsay(hello())\nline()\n"
        'say(frame("R", begin(7, 900)), frame("R", change("c", None, {"id": 1})), frame("E", b"DataException"))'
    )
    before = checkpoint(properties=fingerprint(source))
    source.state.write(before)
    with pytest.raises(NeedsOperator, match="DataException, each time at the same place"):
        agent.Agent(source._config).run()
    assert starts.read_text() == "xxx"
    assert source.state.read("jakarta/bank") == before
