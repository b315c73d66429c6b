"""What a session does while its log is quiet, and how long an `init` waits."""

import json
import time
from types import SimpleNamespace

import msgspec
import pytest

from edge.debezium.checkpoint import DebeziumCheckpoint, Marks, place_of
from edge.debezium.engine import DebeziumEngine
from edge.debezium.frames import COPY_VERSION, HELLO, RECORD, SCHEMA, frame
from edge.debezium.session import DebeziumSession, _copied
from edge.progress.notes import RecordSettings
from edge.records.batcher import Batcher
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position
from tests.unit.edge.debezium import engine_frames as wire
from tests.unit.edge.debezium.test_unproven import MONGODB, ORACLE, change, heartbeat, sqlserver
from tests.unit.edge.postgres.messages import opened


class Process:
    """An engine's process that sends what a test gives it."""

    pieces, is_running, has_part = 0, True, False

    def __init__(self):
        self.frames = [(SCHEMA, content) for content in wire.schemas(wire.COLUMNS)]
        self.server = SimpleNamespace(has_slot=False, settings={}, system_identifier="x")

    def read(self):
        self.pieces += bool(self.frames) or self.has_part
        frames, self.frames, self.has_part = self.frames, [], False
        return iter(frames)

    def fileno(self):
        return 0

    def hello(self, _seconds):
        return self.server

    def greet(self, *_args, **_named):
        pass

    def begin(self, _offset):
        pass

    def close(self):
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
        process.batcher = Batcher(source="a/b", tail=Position.start(1))
        made.start(checkpoint, process.batcher)
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


NEWEST = (RECORD, sqlserver("00000027:00000758:0005", "00000027:00000758:0003"))
AHEAD = {"commit_lsn": "00000027:00000758:0001", "change_lsn": None}


def test_the_newest_commit_of_db2_which_has_no_idle_heartbeats_is_sent_after_half_a_minute(session):
    source, process, clock = session("db2", AHEAD)
    process.frames.append(NEWEST)
    place, reached = 0x27000007580005, []
    for later in (0, *[2] * 18):
        clock.now += later
        source.read(1)
        reached.append(source.passed == place)
    assert (reached[16], reached[18]) == (False, True)


@pytest.mark.parametrize("kind", ["a part of a frame", "a schema", "nothing, which nobody looked for"])
def test_where_something_comes_or_nobody_looks_a_place_of_db2_does_not_end(session, kind):
    """Behind a full outbox it ended, and a change of the same commit behind it ended the edge."""
    source, process, clock = session("db2", AHEAD)
    process.frames.append(NEWEST)
    for _ in range(14):
        clock.now += 2
        source.read(1)
    if kind == "nothing, which nobody looked for":
        clock.now += 40
    elif kind == "a schema":
        process.frames.append((SCHEMA, wire.schemas(wire.COLUMNS)[0]))
    else:
        process.has_part = True
    for _ in range(10):
        source.read(1)
        clock.now += 2
    assert source.passed == 0x27000007580001
    process.frames.append((RECORD, sqlserver("00000027:00000758:0005", "00000027:00000758:0004", number=2)))
    source.read(1)


def oracle(scn, ts_ms):
    """Return a change, and a heartbeat of its place."""
    offset = {"scn": str(scn - 1), "commit_scn": f"{scn}:1:0a{scn:02x}"}
    row = {"id": scn, "note": "n"}
    own = {"txId": f"0a{scn:02x}", "scn": str(scn), "commit_scn": str(scn), "redo_thread": 1}
    return change(ORACLE | own | {"ts_ms": ts_ms}, after=row, key={"id": scn}, offset=offset), heartbeat(offset)


def mongodb(second, ts_ms):
    offset = {"sec": second, "ord": 1}
    source = MONGODB | {"ts_ms": ts_ms, "ord": 1}
    return change(source, after="{}", key={"id": str(second)}, offset=offset), heartbeat(offset)


def of_lsns(number, ts_ms):
    commit, change_lsn = f"00000028:{number:08x}:0005", f"00000028:{number:08x}:0003"
    beat = heartbeat({"commit_lsn": commit, "change_lsn": change_lsn, "event_serial_no": 1})
    return sqlserver(commit, change_lsn, ts_ms=ts_ms), beat


@pytest.mark.parametrize(
    ("connector", "make", "offset"),
    [
        ("sqlserver", of_lsns, AHEAD),
        ("db2", of_lsns, AHEAD),
        ("oracle", oracle, {"scn": "1", "commit_scn": "2:1:0a02"}),
        ("mongodb", mongodb, {"sec": 1, "ord": 1}),
    ],
)
def test_schema_records_go_ahead_of_changes_up_to_what_was_sent_before_a_crash(
    session, tmp_path, connector, make, offset
):
    """With Db2 they went ahead for good, and no stop was clean; with the others until a change was two hours younger."""

    def send(numbers, settings):
        """Have a process read commits and note that it sends them; return for each record whether it is a schema."""
        source, process, clock = session(connector, offset)
        process.batcher.repeat_schema_until = settings.begin(Position(1, 1, 0), source.log_end)
        for number in numbers:
            newest, beat = make(number, 1)
            process.frames += [(RECORD, content) for content in (newest, *[beat] * 3)]
            for _ in range(20):
                source.read(1)
                clock.now += 2
        process.frames.append((RECORD, make(numbers[-1] + 1, 1)[1]))
        source.read(1)
        while source.in_transaction:
            source.read(1)
        batch = process.batcher.seal()
        settings.note_sent(batch.last.commit + 1)
        return [b"tableChanges" in value for value in opened(batch).values]

    def settings(*excluded):
        policy = msgspec.structs.replace(config.policy, exclude_tables=list(excluded))
        return RecordSettings(tmp_path, msgspec.structs.replace(config, policy=policy))

    config = session(connector, offset)[0]._config
    settings().begin(Position.start(1), lambda: 0)
    assert send([16, 18], settings()) == [True, False, False]
    assert send([16, 18, 20, 22], settings("a.b")) == [True, False, True, False, True, False, False]


@pytest.mark.parametrize(
    ("connector", "offset", "counts", "counts_later"),
    [
        ("oracle", {"scn": "5"}, True, True),
        ("db2", AHEAD, True, True),
        # Has heartbeats once it has read the schema history.
        ("sqlserver", AHEAD, True, False),
        ("mongodb", {"sec": 1, "ord": 1}, False, False),
        ("postgres", {"lsn": 5}, False, False),
    ],
)
def test_only_a_process_that_may_be_silent_is_watched_by_itself(session, connector, offset, counts, counts_later):
    """A hung engine of MongoDB's or SQL Server's was never noticed."""
    source, process, _ = session(connector, offset)

    def counts_as_alive(*, wants_reply=True):
        before = source.frames
        source.confirm(1, 1, wants_reply=wants_reply)
        return source.frames > before

    assert not counts_as_alive(wants_reply=False)
    assert counts_as_alive() is counts
    source.read(1)
    assert counts_as_alive() is counts_later
    process.is_running = False
    assert not counts_as_alive()


@pytest.mark.parametrize(
    ("connector", "parts", "ends"), [("mariadb", (), True), ("mariadb", (2, 4), False), ("oracle", (), False)]
)
def test_an_init_waits_two_minutes_for_a_proven_connector_alone(tmp_path, monkeypatch, connector, parts, ends):
    """It waited for a hung one without end. Those that were never run may look at all tables first."""
    clock, process, looks = SimpleNamespace(now=1000.0), Process(), iter(range(6))
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    monkeypatch.setattr(DebeziumEngine, "_process", lambda _self: process)
    (tmp_path / "edge.toml").write_text(FILE.format(connector=connector))
    config = load(tmp_path / "edge.toml", EdgeFile)
    offset = {"scn": "5"} if connector == "oracle" else {"file": "b.000001", "pos": 5}

    def read():
        look = next(looks)
        clock.now += 50
        process.pieces += look in parts
        return iter([(RECORD, heartbeat(offset))] if look == 5 else [])

    process.read = read
    engine = DebeziumEngine(config, config.source.debezium)
    if ends:
        with pytest.raises(NotConnected, match="nothing was heard from Debezium's engine for 120 s"):
            engine.initialise(None, None, lambda _words: None)
    else:
        assert engine.initialise(None, None, lambda _words: None).stage == "made"


@pytest.mark.parametrize(("note", "most"), [("n", 1100), ("n" * (1 << 20), 25)])
def test_several_transactions_are_read_at_once_up_to_a_round_of_changes_or_bytes(session, note, most):
    source, process, _ = session("postgres", {"lsn": 100})
    for number in range(400):
        own = wire.change("c", None, {"id": number, "note": note if number < 40 else ""})
        lsn = 1000 + 10 * number
        process.frames += [(RECORD, each) for each in (wire.begin(number, lsn), own, wire.end(number, lsn + 5, 1))]
    counts = []
    while fed := source.read(1):
        counts.append(fed)
    # Two for its schemas, and for each transaction three frames, its change, and its end.
    assert sum(counts) == 2 + 400 * 5
    assert counts[0] <= most
    assert len(counts) < 20
    written = [json.loads(each) for batch in process.batcher.take() for each in opened(batch).values]
    written += [json.loads(each) for each in process.batcher.values]
    assert [each["after"]["id"] for each in written if "op" in each] == [*range(400)]


def test_a_copy_that_is_cut_or_of_another_release_needs_an_operator(tmp_path):
    path, hello, row = tmp_path / "copy", frame(HELLO, COPY_VERSION), frame(RECORD, b"row")
    path.write_bytes(hello + row)
    assert list(_copied(path)) == [(RECORD, b"row")]
    for content in (b"", row, frame(HELLO, b"5") + row, hello + row[:-1]):
        path.write_bytes(content)
        with pytest.raises(NeedsOperator, match="of another release"):
            list(_copied(path))
