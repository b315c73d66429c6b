"""Statements that empty tables or move their rows without row events, and what the history of tables keeps of them."""

import json

import pytest

from edge.mysql.coverage import Chosen
from edge.records.column_policy import Policy as ColumnPolicy
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import Policy
from headrace.errors import NeedsOperator
from tests.unit.edge.mysql import events
from tests.unit.edge.mysql.events import event, load
from tests.unit.edge.mysql.test_decoder import ANA, ID, NAME, changes, mysql_gtid, query, rows, table_map, xid

SOURCE = "jakarta/bank"


class Session:
    """A session of an edge with a history in a folder."""

    def __init__(self, folder, *, copies=False, chosen=None, sent_until=0):
        self.history = TableHistory(folder, SOURCE, copies=copies)
        self.history.begin(1, sent_until)
        self.decoder, self.batcher = events.make_decoder(history=self.history, chosen=chosen)
        events.feed(self.decoder, events.rotate())

    def insert(self, at, table="accounts", columns=(ID, NAME), images=ANA):
        body = [
            query("BEGIN", at + 10),
            table_map(*columns, table=table, id_=at),
            rows(30, len(columns), images, id_=at),
        ]
        events.feed(self.decoder, mysql_gtid(at, at), *body, xid(at + 90))

    def run(self, words, at, database="bank"):
        events.feed(self.decoder, mysql_gtid(at, at), query(words, at + 90, database))

    def run_in_transaction(self, words, at):
        events.feed(self.decoder, mysql_gtid(at, at), query("BEGIN", at + 10), query(words, at + 20), xid(at + 90))

    @property
    def records(self):
        """Kind and table of each record; of a schema record the reasons that it has."""
        values = [json.loads(value) for value in self.batcher.values]
        return [(value.get("op") or value.get("rewritten"), value["source"]["table"]) for value in values]


def waiting(folder):
    return [request.tables for _, request in SnapshotStore(folder, SOURCE).waiting()]


@pytest.mark.parametrize(
    "words", ["DROP TABLE IF EXISTS `_orders_del`", "TRUNCATE orders", "create or replace table a (id int)"]
)
def test_a_table_that_sent_no_row_is_not_truncated(tmp_path, words):
    """N5: a truncate without a schema record ahead of it stopped every later load of the lake."""
    session = Session(tmp_path)

    session.insert(200)
    session.run(words, 300)

    assert session.records == [(None, "accounts"), ("c", "accounts")]


def test_a_table_that_sent_rows_is_truncated_in_later_sessions_too(tmp_path):
    first = Session(tmp_path)
    first.insert(200)
    first.history.close()

    later = Session(tmp_path)
    later.history.forget_dropped({})
    later.run("DROP TABLE accounts", 300)
    assert later.records == [("t", "accounts")]


def test_the_same_log_read_again_gives_the_same_records(tmp_path):
    """N5: a table that sends rows later has none before."""
    log = [
        ("DROP TABLE IF EXISTS accounts", 200),
        (None, 300),
        ("ALTER TABLE accounts DROP PARTITION p", 400),
        (None, 500),
    ]

    def read():
        session = Session(tmp_path)
        for words, at in log:
            session.run(words, at) if words else session.insert(at)
        session.history.close()
        return session.records

    assert read() == read() == [
        (None, "accounts"), ("c", "accounts"), (["a partition was dropped"], "accounts"), ("c", "accounts"),
    ]  # fmt: skip


@pytest.mark.parametrize("damaged", [True, False])
def test_without_the_history_of_before_every_table_may_have_sent_rows(tmp_path, damaged):
    if damaged:
        (tmp_path / "tables.json").write_text("{")
    session = Session(tmp_path, sent_until=7 << 32)
    session.history.close()

    later = Session(tmp_path, sent_until=7 << 32)
    later.run("TRUNCATE orders", 300)
    assert later.records == [("t", "orders")]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("alter table accounts drop partition p2025", "a partition was dropped"),
        ("alter table accounts exchange partition p with table staging", "a partition was exchanged with a table"),
        ("rename table accounts to former, prepared to accounts", "table bank.prepared was renamed to it"),
        ("alter ignore table accounts add unique (name)", "ALTER IGNORE may have changed and deleted rows"),
    ],
)
def test_a_table_whose_rows_moved_needs_a_copy_and_its_next_schema_record_says_why(tmp_path, words, reason):
    """M7, M9: nothing but a line in the log did, and `after_alter` ignored it."""
    session = Session(tmp_path, copies=True)
    session.insert(200)
    session.run(words, 300)
    session.insert(400)

    assert session.records[2:] == [([reason], "accounts"), ("c", "accounts")]
    assert reason in session.history.warnings["bank.accounts"]
    assert "bank.accounts" in {name for names in waiting(tmp_path) for name in names}


def test_a_table_that_was_renamed_away_is_empty_under_its_former_name(tmp_path):
    """M7."""
    session = Session(tmp_path)
    session.insert(200)
    session.run("rename table accounts to clients", 300)
    session.insert(400, table="clients")

    assert session.records[2:] == [
        ("t", "accounts"), (["table bank.accounts was renamed to it"], "clients"), ("c", "clients"),
    ]  # fmt: skip
    assert list(session.history.warnings) == ["bank.clients"]


def test_a_dropped_database_empties_its_tables(tmp_path):
    """M7."""
    session = Session(tmp_path)
    for number, table in enumerate(("b", "a")):
        session.insert(200 + 100 * number, table=table)
    session.run("alter table a drop partition p", 400)
    session.run("drop database bank", 500, "")

    assert session.records[4:] == [([], "a"), ("t", "a"), ("t", "b")]
    assert session.history.warnings == {}


@pytest.mark.parametrize("replaces", ["", "or replace "])
def test_rows_of_a_query_that_was_logged_as_a_statement_are_copied(tmp_path, replaces):
    """M8: such a table was created without its rows, in silence."""
    session = Session(tmp_path, copies=True)
    session.insert(200)
    session.run(f"create {replaces}table accounts select 1 as id", 300)

    assert session.records[2:] == ([("t", "accounts")] if replaces else [])
    assert "CREATE TABLE … SELECT" in session.history.warnings["bank.accounts"]
    assert waiting(tmp_path) == [["bank.accounts"]]


def test_what_happens_to_tables_that_are_not_captured_is_not_noted(tmp_path):
    """N9."""
    session = Session(tmp_path, chosen=Chosen(["shop"], [], ColumnPolicy(Policy())))
    session.run("rename table accounts to clients", 300)
    session.run("drop database bank", 400)

    assert changes(session.batcher) == []
    assert session.history.warnings == {}


BEGIN = query("BEGIN", 310)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ([query("insert into accounts values (1, 'hidden')", 320)], r"a statement in the log (INSERT INTO accounts)"),
        ([event(17, b"x" * 30), load("load data infile 'x' into table accounts", 320)], "(LOAD DATA infile)"),
        ([query("call p('hidden')", 320)], "(call)"),
        ([table_map(ID, NAME), rows(39, 2, b"x")], "PARTIAL_JSON"),
        ([table_map(ID, NAME), rows(30, 2, b"\0\1\0\0\0", present=b"\1")], "binlog_row_image was not FULL"),
        ([table_map(ID, NAME), rows(30, 2, ANA), query("ROLLBACK TO s", 320)], "rolled back in part"),
    ],
)
def test_what_cannot_be_followed_concerns_its_table_alone(tmp_path, body, reason):
    """One such event stopped the source for good (decision 23)."""
    session = Session(tmp_path, copies=True)
    session.insert(100, table="other")
    session.insert(200)
    before = len(session.records)
    events.feed(session.decoder, mysql_gtid(300, 300), BEGIN, *body, xid(390))
    session.insert(400)

    *_, (marked, table), change = session.records
    assert (table, change) == ("accounts", ("c", "accounts"))
    assert reason in "; ".join(marked)
    assert "hidden" not in "; ".join(marked)
    assert len(session.records) == before + 2 + ("rolled" in reason)
    assert "bank.accounts" in {name for names in waiting(tmp_path) for name in names}
    # A statement whose tables cannot be read may have changed any.
    assert list(session.history.warnings) == (
        ["bank.accounts", "bank.other"] if "call" in reason else ["bank.accounts"]
    )


def test_a_transaction_that_was_rolled_back_in_part_ends(tmp_path):
    session = Session(tmp_path)
    session.insert(200)
    events.feed(
        session.decoder, mysql_gtid(300, 300), BEGIN, table_map(ID, NAME), rows(30, 2, ANA), query("ROLLBACK", 390)
    )

    assert not session.decoder.in_transaction
    assert list(session.history.warnings) == ["bank.accounts"]


def test_the_marks_of_a_log_that_is_read_again_are_the_same(tmp_path):
    def read():
        session = Session(tmp_path)
        session.insert(200)
        session.run_in_transaction("update accounts set name = 'x'", 300)
        session.insert(400)
        session.history.close()
        return session.records

    assert read() == read()


def test_what_may_end_a_transaction_unread_stops_the_source(tmp_path):
    session = Session(tmp_path)

    with pytest.raises(NeedsOperator, match="by a statement"):
        session.run_in_transaction("XA PREPARE X'61',X'',1", 300)
