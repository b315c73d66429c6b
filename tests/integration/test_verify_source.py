"""The database that verify reads: in one snapshot, in any encoding, and refusals that say what to do."""

import pytest

from headrace.errors import NeedsOperator, NotConnected
from headrace.verify.postgres.database import SourceDatabase
from spark_jobs.verify.verify import verify
from tests.verify_sides import SOURCE, Frames, address, rows


def test_a_database_that_does_not_keep_utf8_is_compared_by_characters(postgres, spark):
    postgres.psql("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        postgres.psql("CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, chr(233))", "latin")
        silver = rows(spark, "id, v", "(1, 'é')")
        with SourceDatabase.connect(SOURCE, address(postgres.dsn("latin"))) as source:
            (found,) = verify(SOURCE, source, Frames(public__t=silver))
    finally:
        postgres.psql("DROP DATABASE latin WITH (FORCE)")

    assert found.equal


def test_a_source_is_read_in_one_snapshot_that_cannot_write(bank):
    with SourceDatabase.connect(SOURCE, address(bank.dsn)) as source:
        before = source.query("SELECT count(*) FROM accounts", "accounts")
        bank.execute("DELETE FROM accounts WHERE id = 1")
        after = source.query("SELECT count(*) FROM accounts", "accounts")
        with pytest.raises(NeedsOperator, match="PostgreSQL error 25006"):
            source.query("INSERT INTO accounts VALUES (0) RETURNING id", "accounts")

    assert before == after == [(500,)]


def test_a_database_that_cannot_be_reached_is_said_with_its_address(database):
    gone = address(database.dsn, port=1)

    with pytest.raises(NotConnected, match=f"jakarta/bank: 127.0.0.1:1/{database.name} cannot be reached"):
        SourceDatabase.connect(SOURCE, gone).__enter__()


def test_a_database_that_refuses_needs_an_operator(database):
    unknown = address(database.dsn, user="nobody")

    with pytest.raises(NeedsOperator, match="refuses user 'nobody'"):
        SourceDatabase.connect(SOURCE, unknown).__enter__()


def test_a_table_that_may_not_be_read_is_named_with_the_grant_to_run_and_the_others_are_compared(bank, in_lake):
    bank.execute("CREATE TABLE later (id int)")
    bank.execute(f"CREATE ROLE reader_{bank.name} LOGIN; GRANT SELECT ON later TO reader_{bank.name}")
    try:
        with SourceDatabase.connect(SOURCE, address(bank.dsn, user=f"reader_{bank.name}")) as source:
            accounts, later = verify(SOURCE, source, Frames(public__accounts=in_lake()))
    finally:
        bank.execute(f"DROP OWNED BY reader_{bank.name}; DROP ROLE reader_{bank.name}")

    assert (accounts.verdict, later.verdict) == ("not compared", "equal")
    assert "may not read public.accounts" in accounts.reasons[0]
    assert "GRANT SELECT ON public.accounts" in accounts.reasons[0]
