"""What PostgreSQL complains of, by who must act."""

import pytest

from edge.postgres.errors import SlotTaken, connecting, running
from headrace.errors import NeedsOperator, NotConnected

ADDRESS = "db.example:5432/bank"


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
        ("42501", "ERROR:  permission denied for database bank", NeedsOperator),
        ("42501", "ERROR:  must be superuser or replication role to use replication slots", NeedsOperator),
        ("53400", "ERROR:  all replication slots are in use", NeedsOperator),
        ("42P01", 'ERROR:  relation "public.none" does not exist', NeedsOperator),
        ("57P01", "FATAL:  terminating connection due to administrator command", NotConnected),
        (None, "server closed the connection unexpectedly", NotConnected),
    ],
)
def test_errors_of_an_open_connection_are_told_apart_by_their_state(state, words, kind):
    assert type(running(state, words, ADDRESS, "cdc")) is kind
