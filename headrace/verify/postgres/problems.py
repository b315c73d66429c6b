"""What a source's database refuses, as errors that state who must act and what to run there.

No message repeats the server's own, which could hold a value of a row, but for a refused connection. Called by database.py.
"""

from headrace.configuration.databases import PostgresqlConnection
from headrace.errors import NeedsOperator, NotConnected, ReplicationError, Retryable
from headrace.verify import canonical
from headrace.verify.engine import SourceTable

_RESTING = "Or let writers rest, load, and compare with --at-rest, which needs no slot."


def _may_not_replicate(source: str, address: PostgresqlConnection) -> NeedsOperator:
    return NeedsOperator(
        f"source {source}: {address} makes no temporary slot: user {address.user!r} may not replicate",
        hint=f"Run there: ALTER ROLE {canonical.source_name(address.user)} REPLICATION; {_RESTING}",
    )


def no_slot(source: str, address: PostgresqlConnection, code: str | None, patience: str) -> ReplicationError:
    """Return why no temporary slot could be made; `code` is PostgreSQL's, None when the connection was lost."""
    refused = f"source {source}: {address} makes no temporary slot"
    match code:
        case "42501":
            return _may_not_replicate(source, address)
        case "55000":
            return NeedsOperator(
                f"{refused}: its wal_level is not logical, or it is a replica that cannot",
                hint=f"Name the primary, the server that is captured. {_RESTING}",
            )
        case "53400":
            return NeedsOperator(
                f"{refused}: all replication slots are in use", hint=f"Raise max_replication_slots there. {_RESTING}"
            )
        case "55P03":
            return Retryable(
                f"{refused} within {patience}: a transaction that writes has been open for longer",
                hint="Verify again when it has ended; pg_stat_activity shows it by its xact_start.",
            )
        case None:
            return NotConnected(
                f"source {source}: the connection to {address} was lost", hint="Verify again when the database is back."
            )
        case _:
            return NeedsOperator(f"{refused}: PostgreSQL error {code}", hint=f"See the log of {address}. {_RESTING}")


def refused(source: str, address: PostgresqlConnection, settings: str, message: str) -> ReplicationError:
    """Return why no connection could be made; `settings` names the file, `message` is the driver's message."""
    # Without a connection there is no error code; a server that answers starts its message with FATAL.
    _, fatal, answer = message.partition("FATAL:")
    if "WAL sender" in answer:
        return _may_not_replicate(source, address)
    starting = ("starting up", "shutting down", "recovery", "too many", "not yet accepting")
    if fatal and not any(word in answer for word in starting):
        return NeedsOperator(
            f"source {source}: {address} refuses user {address.user!r}: {answer.strip().splitlines()[0]}",
            hint=f"Check the source's [postgresql] in {settings}: database, user, password.",
        )
    return NotConnected(
        f"source {source}: {address} cannot be reached",
        hint=f"Check that the database runs, and host and port of the source in {settings}.",
    )


def reading(source: str, address: PostgresqlConnection, about: str | SourceTable, code: str | None) -> ReplicationError:
    """Return why something could not be read; `code` is PostgreSQL's, None when the connection was lost."""
    if code == "42501" and isinstance(about, SourceTable):
        table, user = canonical.source_table(about.schema, about.name), canonical.source_name(address.user)
        return NeedsOperator(
            f"source {source}: user {address.user!r} may not read {about}, or row security hides some of it from them",
            hint=f"Run there: GRANT SELECT ON {table} TO {user}; (and USAGE on its schema). "
            f"Where the table has row security: ALTER ROLE {user} BYPASSRLS;",
        )
    if code is None:
        return NotConnected(
            f"source {source}: the connection to {address} was lost while reading {about}",
            hint="Verify again when the database is back; nothing was changed.",
        )
    if code == "57014":
        return Retryable(
            f"source {source}: reading {about} took longer than a statement may take, or was cancelled",
            hint="Verify again, with --sample or one --table at a time; or raise verify_statement_seconds in the edge's file.",
        )
    return NeedsOperator(
        f"source {source}: {about} cannot be read: PostgreSQL error {code}",
        hint=f"See the log of {address} for the statement and its message.",
    )
