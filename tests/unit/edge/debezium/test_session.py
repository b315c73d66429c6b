"""What a session of an unproven connector does while its log is quiet."""

import json
from types import SimpleNamespace

import pytest

from edge.debezium.checkpoint import DebeziumCheckpoint, place_of
from edge.debezium.frames import RECORD, SCHEMA
from edge.debezium.session import DebeziumSession
from edge.debezium.stream import Marks
from edge.progress.notes import UNKNOWN_END
from edge.records.batcher import Batcher
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.position import Position
from tests.unit.edge.debezium import engine_frames as wire
from tests.unit.edge.debezium.test_unproven import heartbeat, sqlserver


class Process:
    """An engine's process that sends what a test gives it."""

    pieces, is_running = 0, True

    def __init__(self):
        self.frames = [(SCHEMA, content) for content in wire.schemas(wire.COLUMNS)]
        self.server = SimpleNamespace(log_end=UNKNOWN_END)

    def read(self):
        frames, self.frames = self.frames, []
        return iter(frames)

    def fileno(self):
        return 0

    def hello(self, _seconds):
        return self.server

    def greet(self, *_args, **_named):
        pass

    def begin(self, _offset):
        pass


@pytest.fixture
def session(tmp_path, monkeypatch):
    """Return what makes a session of a connector, its process, and its clock."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("edge.debezium.session.time.monotonic", lambda: clock.now)

    def make(connector, offset):
        path = tmp_path / "edge.toml"
        path.write_text(FILE.format(connector=connector))
        config, process = load(path, EdgeFile), Process()
        fields = {"source": "a/b", "stage": "made", "acknowledged": str(Position.start(1)), "connector": connector}
        place = place_of(connector, json.dumps(offset))
        checkpoint = DebeziumCheckpoint(
            **fields, confirmed_place=place, copy_ahead=False, offset=("k", json.dumps(offset))
        )
        made = DebeziumSession(config, config.source.debezium, process, Marks(), checkpoint.offset[1])
        made.start(checkpoint, Batcher(source="a/b", tail=Position.start(1)))
        return made, process, clock

    return make


FILE = """
[source]
name = "a/b"
[source.debezium]
connector = "{connector}"
[source.debezium.properties]
"database.hostname" = "db"
[interconnect]
url = "amqp://127.0.0.1:1"
[state]
folder = "."
[spool]
megabytes = 0
"""


def test_the_newest_commit_of_db2_which_has_no_idle_heartbeats_is_sent_after_half_a_minute(session):
    source, process, clock = session("db2", {"commit_lsn": "00000027:00000758:0001", "change_lsn": None})
    process.frames += [(RECORD, sqlserver("00000027:00000758:0005", "00000027:00000758:0003"))]
    place, reached = 0x27000007580005, []
    for later in (0, 1, 29, 2, 0):
        clock.now += later
        source.read(1)
        reached.append(source.passed == place)
    assert reached == [False, False, False, False, True]


def test_where_nothing_more_is_found_the_log_ends(session):
    source, process, _ = session("sqlserver", {"commit_lsn": "00000027:00000758:0001", "change_lsn": "NULL"})
    assert source.log_end() == UNKNOWN_END
    idle = (RECORD, heartbeat({"commit_lsn": "00000027:00000758:0005", "change_lsn": "NULL"}))
    for frames in ([idle], [(RECORD, sqlserver("00000027:00000758:0005", "00000027:00000758:0003"))], [idle], [idle]):
        process.frames += frames
        source.read(1)
    assert source.log_end() == UNKNOWN_END
    while source.in_transaction:
        source.read(1)
    process.frames = [idle]
    source.read(1)
    assert source.log_end() == source.passed == 0x27000007580005
    db2, _, clock = session("db2", {"commit_lsn": "00000027:00000758:0001", "change_lsn": "NULL"})
    db2.read(1)
    for later in (0, 31):
        assert db2.log_end() == UNKNOWN_END
        clock.now += later
        db2.read(1)
    assert db2.log_end() == 0x27000007580001


@pytest.mark.parametrize(("connector", "counts"), [("oracle", True), ("postgres", False)])
def test_a_process_that_may_be_silent_is_watched_by_itself(session, connector, counts):
    source, process, _ = session(connector, {"scn": "5"} if connector == "oracle" else {"lsn": 5})
    before = source.frames
    source.confirm(1, 1)
    assert source.frames == before
    source.confirm(1, 1, wants_reply=True)
    assert (source.frames > before) is counts
    process.is_running = False
    after = source.frames
    source.confirm(1, 1, wants_reply=True)
    assert source.frames == after
