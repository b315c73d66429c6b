"""A session with the database: when it counts as silent."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from edge import session as capture
from edge.delivery.outbox import Outbox
from edge.mysql.errors import missing_columns, streaming
from edge.observability.figures import Figures
from edge.postgres.checkpoint import Commits, PostgresCheckpoint
from edge.postgres.errors import corrupt, running
from edge.progress.checkpoint import Progress, State
from edge.progress.notes import RecordSettings
from edge.session import CaptureSession
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import EdgeFile
from headrace.configuration.load import load
from headrace.errors import NotConnected
from headrace.files import problem
from headrace.position import Position
from headrace.waiting import Wakeup
from tests.unit.edge.progress.test_checkpoint import checkpoint

SOURCE = "jakarta/bank"
#: What a turn takes, in seconds of the clock below; and the number of turns in two and a half minutes.
TURN_SECONDS, TURNS = 5.0, 30
START = Position.start(7)


class Unused:
    """What is called and has no part in this."""

    def __getattr__(self, name):
        return lambda *_arguments, **_options: None


class Session:
    """A session that works without a frame of its server's: as a transaction that was prepared is decoded."""

    pid, replies_requested, frames, passed, in_transaction, present = 1, 0, 1, 0, True, "0-1-7"

    def __init__(self, clock, works, error):
        self.clock, self.works, self.turns, self.wakeup, self.error = clock, works, 0, Wakeup(), error

    def read(self, _now_ms):
        if self.error is not None:
            raise self.error
        self.clock.now += TURN_SECONDS
        self.turns += 1
        return int(self.works)

    def fileno(self):
        # Always ready, so that no turn waits.
        self.wakeup.notify()
        return self.wakeup.fileno()

    def snapshots(self):
        return SimpleNamespace(stream=lambda _marked: Unused(), reader=lambda: None)

    def log_end(self):
        return 50

    def start(self, _checkpoint, _batcher, _history):
        pass

    def confirm(self, _place, _now_ms, *, wants_reply=False):
        pass

    def close(self):
        pass


@pytest.fixture
def captured(tmp_path, monkeypatch):
    """Return a function that captures with a session for some turns, by a clock of its own."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(capture.time, "monotonic", lambda: clock.now)
    path = tmp_path / "edge.toml"
    path.write_text(
        f'[source]\nname = "{SOURCE}"\n[source.mariadb]\nhost = "h"\nuser = "u"\nserver_id = 9\n'
        '[interconnect]\nurl = "amqp://127.0.0.1:1"\n[state]\nfolder = "state"\n'
    )
    (tmp_path / "state").mkdir()

    def run(*, works=True, error=None, acknowledged=START):
        state = State(tmp_path / "state", PostgresCheckpoint)
        session = Session(clock, works, error)
        engine = SimpleNamespace(address="here", state=state, open=lambda _checkpoint, _pid: session)
        outbox = Outbox(limit_bytes=1000, tail=acknowledged, confirmed=50)
        progress = Progress(state, checkpoint(acknowledged, 50), outbox, Commits().advanced)
        config = load(path, EdgeFile)
        settings = RecordSettings(tmp_path / "state", config)
        capture_session = CaptureSession(
            config,
            engine,
            progress,
            outbox,
            Figures(),
            Wakeup(),
            0,
            settings,
            history=TableHistory(tmp_path / "state", SOURCE),
        )
        try:
            capture_session.run(lambda: session.turns >= TURNS)
        finally:
            capture_session.close()
        return session.turns

    return run


def test_a_session_that_works_without_frames_is_not_silent(captured):
    """A prepared transaction whose rows took more than two minutes began again for ever (E9)."""
    assert captured(works=True) == TURNS


def test_a_session_without_work_and_frames_is_silent(captured):
    with pytest.raises(NotConnected, match="nothing was heard from here for 120 s"):
        captured(works=False)


@pytest.mark.parametrize(
    ("error", "helps"),
    [
        (corrupt(b"I", is_known=True, place="at 1"), True),
        (missing_columns("at 1"), True),
        (running("42501", "permission denied for table t", "here", "someone"), False),
        (streaming(1236, "could not find first log file name", "here", "someone", 1, "binlog.1:4"), False),
        (problem(Path("tables.json"), "written", PermissionError(13, "Permission denied")), False),
    ],
)
def test_the_last_resort_is_named_where_it_helps(captured, error, helps):
    """It was for errors of the server and of the disk too, at which the edge stops again behind it."""
    with pytest.raises(type(error)) as stopped:
        captured(error=error)
    assert ("headrace edge pass --gtid 0-1-7" in stopped.value.hint) is helps
