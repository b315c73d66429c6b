"""The publication: which tables the log stream carries, and whether it is still the one that `init` found or made."""

from collections.abc import Mapping

from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.connection import Database
from edge.postgres.errors import ANEW, quoted
from headrace.errors import NeedsOperator


def publication_oid(database: Database, name: str) -> int:
    """Return the oid of a publication, 0 when there is none."""
    return database.value("select oid::int8 from pg_publication where pubname = %s", name) or 0


def make_publication(database: Database, name: str, tables: list[str], row_filters: Mapping[str, str]) -> None:
    """Make a publication of the listed tables, `schema.table`, or of all tables when none is listed.

    `row_filters` are conditions by table: rows that do not meet theirs never leave the server. Raises NeedsOperator when a
    table does not exist, or when the user may not.
    """
    listed = ", ".join(
        ".".join(map(quoted, table.split(".", 1))) + (f" where ({row_filters[table]})" if table in row_filters else "")
        for table in tables
    )
    database.rows(f"create publication {quoted(name)} for " + (f"table {listed}" if tables else "all tables"))


def check_publication(database: Database, checkpoint: PostgresCheckpoint) -> None:
    """Raise NeedsOperator unless the publication is there, and is the one that `init` found or made."""
    oid = publication_oid(database, checkpoint.publication)
    if oid == checkpoint.publication_oid:
        return
    gone = f"publication {checkpoint.publication!r} " + (
        "was dropped" if oid == 0 else "was dropped and made again since 'init'"
    )
    raise NeedsOperator(
        f"{gone}: changes after {checkpoint.confirmed_lsn} may not have been published",
        hint=ANEW,
    )
