"""How a source is made: behind a copy or where the log is, again after an `init` that was cut, and by no slot that is there."""

import json

import pytest

from edge.debezium.checkpoint import COPY
from edge.debezium.engine import DebeziumEngine
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NeedsOperator, NotConnected
from headrace.position import Position
from tests.unit.edge.debezium import engine_frames, java_double
from tests.unit.edge.debezium.conftest import NO_ROWS, ROWS
from tests.unit.edge.debezium.test_checkpoint import checkpoint

COPIED = """
settings = line()
say(hello())
line()
say(*[frame("S", content) for content in schemas(COLUMNS)])
say(*[frame("R", change("r", None, {"id": number, "note": "n"}, snapshot="true")) for number in range(3)])
"""


EMPTY = 'say(hello())\nline(), line()\nsay(frame("R", heartbeat(500)))\nline()'


SLOT = EMPTY.replace("hello()", "hello(has_slot=True)")


def test_a_source_that_was_never_tried_is_made_from_what_debezium_copies(read, tmp_path, monkeypatch):
    monkeypatch.setattr("edge.debezium.engine.class_path", lambda _connector: [tmp_path / "a.jar"])
    (tmp_path / "state").mkdir()
    offset = '{"commit_lsn": "000443d8:0073d0da:0005", "event_serial_no": 0}'
    java = java_double.write(tmp_path, COPIED + f'say(frame("R", record(HEARTBEATS, {offset})))\nline()')
    read(java=java, more=ROWS)
    file = tmp_path / "edge.toml"
    for connector, spool in (("sqlserver", 0), ("sqlserver", 1)):
        text = file.read_text().replace('"postgres"', f'"{connector}"', 1) + f"\n[spool]\nmegabytes = {spool}\n"
        (tmp_path / f"{spool}.toml").write_text(text)
    with pytest.raises(ConfigurationError, match="'spool' is not for"):
        load(tmp_path / "1.toml", EdgeFile)
    config = load(tmp_path / "0.toml", EdgeFile)
    names = config.source.debezium
    settings = names.settings("initial", "p")
    assert settings["schema.history.internal"] == "headrace.debezium.SchemaHistoryFile"
    assert settings["schema.history.internal.store.only.captured.tables.ddl"] == "true"
    assert names.not_for_production() != []
    source = DebeziumEngine(config, names)
    made = source.initialise(None, None, lambda _words: None)
    place = 0x443D80073D0DA0005
    assert (made.stage, made.confirmed, made.copy_ahead) == ("made", place - 1, True)
    assert source.state.read("jakarta/bank") == made
    assert (tmp_path / "state" / "debezium-schema-history.jsonl").exists()
    assert made.advanced(Position(made.position.epoch, place - 1, 2), place, None).confirmed == place


def test_a_new_source_begins_behind_its_copy_or_where_the_log_is(engine, tmp_path):
    made = engine(COPIED + 'say(frame("R", heartbeat(500)))\nline()').initialise(None, None, lambda _words: None)
    assert (made.stage, made.confirmed, made.copy_ahead) == ("made", 499, True)
    assert made.system_identifier == engine_frames.SYSTEM
    assert (tmp_path / "state" / COPY).stat().st_size > 0
    again = engine("").initialise(made, None, lambda _words: None)
    assert again == made
    assert made.advanced(Position(made.position.epoch, 499, 1), 499, None).copy_ahead is True
    assert made.advanced(Position(made.position.epoch, 499, 2), 500, None).copy_ahead is False


def test_a_new_source_without_rows_begins_where_the_log_is(engine):
    made = engine(EMPTY).initialise(None, None, lambda _words: None)
    assert (made.confirmed, made.copy_ahead, json.loads(made.offset[1])["lsn"]) == (500, False, 500)


@pytest.mark.parametrize(
    "program",
    [
        COPIED,
        COPIED + 'say(frame("R", begin(7, 900)))\nline()',
        # Before anything was made.
        "sys.exit(3)",
    ],
)
def test_an_init_that_is_cut_is_finished_by_the_next_one(engine, program):
    first = engine(program)
    with pytest.raises(NotConnected):
        first.initialise(None, None, lambda _words: None)
    cut = first.state.read("jakarta/bank")
    assert (cut.stage, cut.offset) == ("making", None)
    with pytest.raises(NeedsOperator, match="slot own is there already"):
        engine(SLOT).initialise(cut, None, lambda _words: None)
    made = engine(EMPTY).initialise(cut, None, lambda _words: None)
    assert (made.stage, made.position) == ("made", cut.position)


def test_an_init_that_is_cut_is_finished_with_another_connector(engine):
    cut = checkpoint(stage="making", connector="mysql", offset=None, confirmed_place=0)
    made = engine(EMPTY).initialise(cut, None, lambda _words: None)
    assert (made.connector, made.confirmed) == ("postgres", 500)


def test_rows_are_not_copied_where_the_slot_is_there_as_its_log_has_a_part_of_them_too(engine):
    with pytest.raises(NeedsOperator) as error:
        engine(SLOT).initialise(None, None, lambda _words: None)
    assert "slot own is there already" in error.value.message
    assert "pg_drop_replication_slot('own')" in error.value.hint
    # Without a copy it is only where to read from.
    made = engine(SLOT, NO_ROWS).initialise(None, None, lambda _words: None)
    assert made.confirmed == 500
