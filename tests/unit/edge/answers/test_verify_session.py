"""What a session of a verification reads, whoever asks: the statements that reach the database, and that the database is kept."""

from contextlib import contextmanager

import msgspec
import pytest

from edge.answers import verify_session
from edge.answers.handlers import policy_filter
from edge.answers.verify_session import Verification
from edge.mysql.checkpoint import MysqlCheckpoint, place
from headrace.configuration.edge import EdgeFile
from headrace.errors import NotConnected
from headrace.position import Position
from headrace.verify import canonical, comparison, contract
from headrace.verify.canonical import SilverType, SourceType
from headrace.verify.comparison import Place, SourceTable
from headrace.verify.contract import ComparedColumn, ComparedTable
from headrace.verify.postgres.side import PostgresSide
from tests.rules.waiting import eventually

TEXT = SilverType(name="string")
GRID = comparison.grid(comparison.hashes(), 1)


class SourceStub:
    """A database with a captured and an uncaptured table, which notes the statements that it is asked."""

    forms, sequences, place = canonical, frozenset(), None

    def __init__(self):
        self.statements, self.kept = [], 0
        self.problem = None
        self.checkpoint = None

    def idle_since(self, _commit):
        return False

    def tables(self):
        columns = {"id": SourceType(name="int8"), "salary": SourceType(name="text")}
        return [
            SourceTable(schema="hr", name="people", columns=columns, key=("id",)),
            SourceTable(schema="hr", name="salaries", columns=columns, key=("id",), captured=False),
        ]

    def side(self, table, columns, key, *, on_progress=None):
        return PostgresSide(self.query, table, columns, key, on_progress=on_progress)

    def query(self, statement, _about):
        self.statements.append(statement)
        return []

    def keep(self):
        self.kept += 1
        if self.problem is not None:
            raise self.problem

    def interrupt(self):
        pass


@pytest.fixture
def database():
    return SourceStub()


@pytest.fixture
def session(database):
    @contextmanager
    def connect(_placed):
        yield database

    given = {
        "source": {"name": "a/b", "postgresql": {"host": "h", "database": "d", "user": "u"}},
        "interconnect": {"url": "amqp://h:1"},
        "state": {"folder": "state"},
    }
    leaving = policy_filter(msgspec.convert(given, EdgeFile))
    verification = Verification("0" * 16, "ann", "postgresql", connect, leaving, checkpoint=lambda: database.checkpoint)
    assert verification.ask(0, contract.Open(placed=False), 30).state == "done"
    yield verification
    verification.end()


def rows_of(name, key):
    columns = [ComparedColumn(name=each, in_silver=TEXT) for each in ("id", "salary")]
    table = ComparedTable(name=name, columns=columns, key=key)
    return contract.Rows(table=table, grid=GRID, cells=[0], key_hashes=["0" * 32])


def test_keys_that_are_answered_are_of_the_catalogs_key_alone(session, database):
    """S6: who asks named any column as the key, and had its values answered as text."""
    for step, key in enumerate((["id", "salary"], ["salary"]), 1):
        reply = session.ask(step, rows_of("hr.people", key), 30)
        assert (reply.state, reply.failure.kind) == ("failed", "CorruptInput")
        assert "another key" in reply.failure.message
    assert database.statements == []

    assert session.ask(3, rows_of("hr.people", ["id"]), 30).state == "done"
    assert "format('%s', \"id\")" in database.statements[0]


def test_no_row_is_read_of_a_table_that_is_not_captured(session, database):
    """S6, V2: every table that the edge's user may select was read."""
    listed = session.ask(1, contract.Tables(), 30).result.tables
    assert [(str(each), each.captured, list(each.columns)) for each in listed] == [
        ("hr.people", True, ["id", "salary"]),
        ("hr.salaries", False, []),
    ]
    steps = [
        contract.Count(table=ComparedTable(name="hr.salaries")),
        contract.Measure(table=ComparedTable(name="hr.salaries")),
        rows_of("hr.salaries", ["id"]),
    ]
    for number, step in enumerate(steps, 2):
        reply = session.ask(number, step, 30)
        assert (reply.state, reply.failure.kind) == ("failed", "CorruptInput")
        assert "no captured table 'hr.salaries'" in reply.failure.message
    assert database.statements == []


def test_the_database_is_asked_for_something_while_nobody_asks_for_a_step(monkeypatch, session, database):
    """V1: the server ends a transaction in which nothing was asked for 240 s, however often headquarters keeps the session."""
    monkeypatch.setattr(verify_session, "_KEEP_SECONDS", 0.01)
    # The thread waits with the former number until the next step.
    assert session.ask(1, contract.Tables(), 30).state == "done"
    eventually(lambda: database.kept >= 2, saying="the database's snapshot is kept")

    assert session.ask(2, contract.Tables(), 30).state == "done"
    database.problem = NotConnected("the server ended the connection")
    eventually(lambda: session.is_over, saying="a snapshot that is lost ends the session")
    assert not session.has_answer(3)


@pytest.mark.parametrize(
    ("confirmed", "acknowledged", "spooled", "expected"),
    [
        ((7, 900), (7, 300), None, True),
        ((8, 4), (7, 300), None, True),
        # Not read up to the snapshot, more than the lake has, or not acknowledged yet.
        ((7, 899), (7, 300), None, False),
        ((7, 900), (7, 301), None, False),
        ((7, 900), (7, 300), (7, 350), False),
    ],
)
def test_an_edge_that_has_read_its_log_answers_for_a_source_at_rest(
    session, database, confirmed, acknowledged, spooled, expected
):
    """M11: the log was listed, and after 2,000 events of whatever table a source at rest was none."""
    database.place = Place(place(7, 900), "binlog.000007:900")
    database.checkpoint = MysqlCheckpoint(
        source="a/b", stage="made", acknowledged=str(Position(7, place(*acknowledged), 2)), engine="mysql", gtids="",
        file=f"binlog.{confirmed[0]:06}", offset=confirmed[1], server_id=1, server="x",
        spooled=str(Position(7, place(*spooled), 0)) if spooled else "",
    )  # fmt: skip

    assert session.ask(1, contract.Idle(commit=place(7, 300)), 30).result is expected


def test_a_defect_of_a_step_is_logged_by_its_class_and_place(session, monkeypatch, caplog):
    """S12: words and traceback of an error may hold values of rows."""

    def tables():
        raise KeyError("4929-1234")

    monkeypatch.setattr(session._database, "tables", tables)
    reply = session.ask(1, contract.Tables(), 30)
    assert reply.state == "failed"
    assert "4929" not in caplog.text + reply.failure.message
    assert "a step of a verification failed: KeyError at " in caplog.text
