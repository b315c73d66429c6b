"""What PostgreSQL complains of, by who must act."""

import pytest

from edge.mysql.errors import statement_failed as mysql_failed
from edge.postgres.errors import SlotTaken, connecting, running, statement_failed
from headrace.errors import NeedsOperator, NotConnected

ADDRESS = "db.example:5432/bank"
CARD = "4929-1234-5678-9012"


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        ('connection failed: FATAL:  password authentication failed for user "cdc"', "password"),
        ('connection failed: FATAL:  role "cdc" does not exist', 'create role "cdc"'),
        ('FATAL:  database "bank" does not exist', "database"),
        ('FATAL:  no pg_hba.conf entry for replication connection from host "::1", user "cdc"', "pg_hba.conf"),
        ("FATAL:  permission denied to start WAL sender", 'alter role "cdc" replication;'),
        ("FATAL:  must be superuser or replication role to start walsender", 'alter role "cdc" replication;'),
    ],
)
def test_refusal_that_stays_calls_an_operator_with_what_mends_it(words, hint):
    error = connecting(words, ADDRESS, "cdc", "bank")

    assert isinstance(error, NeedsOperator)
    assert ADDRESS in error.message
    assert hint in error.hint


@pytest.mark.parametrize(
    "words",
    [
        "connection refused: Is the server running on that host and accepting TCP/IP connections?",
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is shutting down",
        "FATAL:  sorry, too many clients already",
        "timeout expired",
        "",
    ],
)
def test_refusal_that_passes_is_tried_again(words):
    error = connecting(words, ADDRESS, "cdc", "bank")

    assert isinstance(error, NotConnected)
    assert not isinstance(error, NeedsOperator)


def test_slot_in_use_names_the_process_that_has_it():
    error = running("55006", 'ERROR:  replication slot "headrace" is active for PID 4711', ADDRESS, "cdc")

    assert isinstance(error, SlotTaken)
    assert error.pid == 4711


@pytest.mark.parametrize(
    ("state", "words", "kind"),
    [
        # As a PostgreSQL 15 in German writes it; in other languages only the names of settings are the same.
        (
            "53400",
            "alle Replikations-Slots sind in Benutzung\nHINT:  Geben Sie einen frei oder erhöhen Sie max_replication_slots.",
            NeedsOperator,
        ),
        ("55006", "Replikations-Slot »headrace« ist aktiv für PID 4711", SlotTaken),
        ("55006", 'PID为4711的进程正在使用复制槽"headrace"', SlotTaken),
        ("53300", "remaining connection slots are reserved for roles with the SUPERUSER attribute", NotConnected),
    ],
)
def test_what_a_server_says_in_another_language_is_known_by_its_state(state, words, kind):
    error = running(state, words, ADDRESS, "cdc", slot="headrace")
    assert type(error) is kind
    if isinstance(error, SlotTaken):
        assert (error.slot, error.pid) == ("headrace", 4711)


@pytest.mark.parametrize(
    ("state", "words", "kind"),
    [
        ("42501", "ERROR:  permission denied for database bank", NeedsOperator),
        ("42501", "ERROR:  must be superuser or replication role to use replication slots", NeedsOperator),
        (
            "53400",
            'ERROR:  all replication slots are in use\nHINT:  Free one or increase "max_replication_slots".',
            NeedsOperator,
        ),
        ("42P01", 'ERROR:  relation "public.none" does not exist', NeedsOperator),
        ("57P01", "FATAL:  terminating connection due to administrator command", NotConnected),
        (None, "server closed the connection unexpectedly", NotConnected),
    ],
)
def test_errors_of_an_open_connection_are_told_apart_by_their_state(state, words, kind):
    assert type(running(state, words, ADDRESS, "cdc")) is kind


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            statement_failed("22P02", f'ERROR:  invalid input syntax for type integer: "{CARD}"', ADDRESS, "cdc"),
            "22P02",
        ),
        (statement_failed("22012", "ERROR:  division by zero", ADDRESS, "cdc"), "SQLSTATE 22012"),
        (
            statement_failed("42601", f"ERROR:  syntax error at or near \"'{CARD}'\"", ADDRESS, "cdc"),
            "is not valid SQL",
        ),
        (
            statement_failed("42703", 'ERROR:  column "a" does not exist', ADDRESS, "cdc"),
            "a column that does not exist",
        ),
        (statement_failed("P0001", f"ERROR:  card {CARD} is wrong", ADDRESS, "cdc"), "a function that refuses"),
        (mysql_failed(1292, f"Truncated incorrect DOUBLE value: '{CARD}'", ADDRESS), "error 1292"),
        (mysql_failed(1054, "Unknown column 'a' in 'where clause'", ADDRESS), "a column that does not exist"),
        (mysql_failed(9999, f"Something about {CARD}", ADDRESS), "cannot be run (error 9999)"),
    ],
)
def test_errors_of_statements_over_rows_have_no_words_of_the_server(error, words):
    """S12: it quotes values of rows, of masked columns too, and its words went to log and headquarters."""
    assert type(error) is NeedsOperator
    assert words in error.message
    assert CARD not in error.message + error.hint
