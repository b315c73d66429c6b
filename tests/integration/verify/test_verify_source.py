"""The database that verify reads: in one snapshot, in any encoding, and refusals that say what to do."""

import time

import pytest

from edge.answers import verify_session
from headrace.configuration.edge import Postgresql
from headrace.errors import NeedsOperator, NotConnected
from headrace.verify import canonical, comparison, contract
from headrace.verify.comparison import Reading
from headrace.verify.postgres.database import SourceDatabase
from spark_jobs.verify.verify import verify
from tests.lake.verify_sides import SOURCE, Frames, address, rows
from tests.rules.waiting import eventually


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
        before = source.query("SELECT count(*) FROM public.accounts", "accounts")
        bank.execute("DELETE FROM accounts WHERE id = 1")
        after = source.query("SELECT count(*) FROM public.accounts", "accounts")
        with pytest.raises(NeedsOperator, match="PostgreSQL error 25006"):
            source.query("INSERT INTO public.accounts VALUES (0) RETURNING id", "accounts")

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
    assert 'GRANT SELECT ON "public"."accounts" TO "reader_' in accounts.reasons[0]


def test_an_edge_reads_the_tables_columns_and_rows_of_its_publication_alone(database):
    """S6, V2: all that its user may select was read, and answered."""
    database.execute(
        "CREATE TABLE accounts (id int PRIMARY KEY, country text, iban text);"
        "INSERT INTO accounts SELECT n, CASE n % 2 WHEN 0 THEN 'ID' ELSE 'UK' END, 'x' FROM generate_series(1, 10) n;"
        "ALTER TABLE accounts REPLICA IDENTITY FULL;"
        "CREATE TABLE salaries (id int PRIMARY KEY); INSERT INTO salaries VALUES (1);"
        "CREATE TABLE logs (id int PRIMARY KEY) PARTITION BY RANGE (id);"
        "CREATE TABLE logs_1 PARTITION OF logs FOR VALUES FROM (0) TO (10); INSERT INTO logs VALUES (1);"
        "CREATE PUBLICATION headrace FOR TABLE accounts (id, country) WHERE (country = 'ID'), logs;"
        "CREATE PUBLICATION others FOR TABLE salaries"
    )
    given = address(database.dsn)
    of_edge = Postgresql(host=given.host, port=given.port, database=given.database, user=given.user)
    with SourceDatabase.connect(SOURCE, of_edge) as source:
        tables = {table.name: table for table in source.tables()}
        accounts = tables["accounts"]
        side = source.side(accounts, [canonical.absent("id")], [canonical.absent("id")])
        rows = side.digests(comparison.grid(comparison.keys(1, 10), 2))
        assert (side.count(), side.bounds(), sum(each.rows for each in rows.values())) == (5, (2, 10), 5)
        assert side.about() >= 0

    assert {name for name, table in tables.items() if table.captured} == {"accounts", "logs", "logs_1"}
    assert (list(accounts.columns), accounts.treated) == (["id", "country"], {"iban": "not published"})

    database.execute("ALTER PUBLICATION headrace SET (publish_via_partition_root = true); DROP PUBLICATION others")
    with SourceDatabase.connect(SOURCE, of_edge) as source, SourceDatabase.connect(SOURCE, given) as direct:
        for each in (source, direct):
            assert [table.name for table in each.tables() if not table.captured] == ["salaries"]


def test_a_table_whose_row_security_would_hide_rows_is_refused(database):
    """V7: what the user does not see was "only in the lake", or not missed."""
    name = f"auditor_{database.name}"
    database.execute(
        "CREATE TABLE accounts (id int PRIMARY KEY); INSERT INTO accounts VALUES (1), (2);"
        "ALTER TABLE accounts ENABLE ROW LEVEL SECURITY; CREATE POLICY first_only ON accounts USING (id = 1);"
        f"CREATE ROLE {name} LOGIN; GRANT SELECT ON accounts TO {name}"
    )
    try:
        with SourceDatabase.connect(SOURCE, address(database.dsn, user=name)) as source:
            (table,) = source.tables()
            with pytest.raises(NeedsOperator, match="row security hides some") as raised:
                source.side(table, [], []).count()
            assert source.query("SELECT 1", "nothing") == [(1,)]
    finally:
        database.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    assert f'ALTER ROLE "{name}" BYPASSRLS' in raised.value.hint


def test_a_snapshot_outlives_the_servers_patience_with_idle_ones(database, monkeypatch):
    """V1: a session was ended by the server while headquarters computed."""
    monkeypatch.setattr(verify_session, "_KEEP_SECONDS", 0.1)
    database.execute("CREATE TABLE t (id int PRIMARY KEY)")
    reading = Reading(idle_seconds=3)
    session = verify_session.Verification(
        "0" * 16,
        "ann",
        "postgresql",
        lambda placed: SourceDatabase.connect(SOURCE, address(database.dsn), placed=placed, reading=reading),
        list,
    )
    try:
        assert session.ask(0, contract.Open(placed=False), 30).state == "done"
        began = time.monotonic()
        eventually(lambda: session.is_over or time.monotonic() - began > 6, saying="twice its patience has passed")
        reply = session.ask(1, contract.Count(table=contract.ComparedTable(name="public.t")), 30)
        assert (reply.state, reply.result) == ("done", 0)
    finally:
        session.end()
