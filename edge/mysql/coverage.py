"""What is captured of a server, whether its log has the changes of that, and whether it is there.

Guarantees that nothing is changed. A server may keep databases out of its log, and a replica what it applies; a copy of their
tables would succeed, and nothing would follow it. Called by `init`, when a connection begins, and by the doctor.
"""

import logging
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple

from edge.mysql.checks import SHOW_REPLICAS, log_status
from edge.mysql.connection import Database
from edge.records.column_policy import Policy, PolicyTable
from headrace.configuration.edge import Mysql
from headrace.configuration.edge import Policy as Section
from headrace.errors import NeedsOperator

_log = logging.getLogger(__name__)

#: The servers' own.
SYSTEM: Final = frozenset({"mysql", "sys", "information_schema", "performance_schema"})
#: Without a join: servers compare each row of the one with each row of the other.
_COLUMNS = """
select table_schema, table_name, column_name, column_key = 'PRI'
from information_schema.columns order by 1, 2, ordinal_position
"""
#: The oldest release of MariaDB that was seen to log updates and deletes without generated columns.
_WITHOUT_GENERATED = (11, 8)
_GENERATED = """
select table_schema, table_name, column_name from information_schema.columns
where is_generated = 'ALWAYS' and coalesce(generation_expression, '') not in ('ROW START', 'ROW END')
"""
_STORED = "select table_schema, table_name from information_schema.tables where table_type in ('BASE TABLE', 'SYSTEM VERSIONED')"


class Chosen:
    """Which tables are captured: of some databases or all, of these some tables or all, and what the policy admits."""

    def __init__(self, databases: list[str], tables: list[str], policy: Policy) -> None:
        self._databases, self._tables, self._policy = frozenset(databases), frozenset(tables), policy

    def __call__(self, database: str, table: str) -> bool:
        """Return whether a table is captured."""
        name = f"{database}.{table}"
        if self._tables:
            chosen = name in self._tables
        else:
            chosen = database in self._databases if self._databases else database not in SYSTEM
        return chosen and self._policy.admits(database, table)

    def has_some_of(self, database: str) -> bool:
        """Return whether tables of a database may be captured."""
        if self._tables:
            return any(name.startswith(f"{database}.") for name in self._tables)
        return database in self._databases if self._databases else database not in SYSTEM


def described_columns(database: Database, names: Mysql) -> Iterator[PolicyTable]:
    """Yield the captured tables, and those that the policy keeps back, with columns and primary key."""
    chosen = Chosen(names.databases, names.tables, Policy(Section()))
    stored = {(str(schema), str(table)) for schema, table in database.rows(_STORED)}
    columns: dict[tuple[str, str], list[tuple[str, bool]]] = {}
    for schema, table, name, keyed in database.rows(_COLUMNS):
        columns.setdefault((str(schema), str(table)), []).append((str(name), bool(keyed)))
    for (schema, table), named in columns.items():
        if (schema, table) in stored and chosen(schema, table):
            yield PolicyTable(schema, table, [name for name, _ in named], [name for name, keyed in named if keyed])


def leaves_generated_out(database: Database) -> bool:
    """Return whether a server logs updates and deletes without generated columns."""
    return database.is_mariadb and database.release >= _WITHOUT_GENERATED


def generated_columns(database: Database, of: str, table: str) -> list[str]:
    """Return the generated columns of a table of such a server."""
    return [
        str(name) for _, _, name in database.rows(f"{_GENERATED} and table_schema = %s and table_name = %s", of, table)
    ]


def tables_with_generated(database: Database) -> list[tuple[str, str]]:
    """Return the tables of such a server that have some."""
    return sorted({(str(of), str(table)) for of, table, _ in database.rows(_GENERATED)})


class Gap(NamedTuple):
    """Changes that the log lacks."""

    what: str
    hint: str
    #: Whether they are certainly of what is captured: of databases that the edge's file names.
    is_named: bool


def check_logged(database: Database, names: Mysql, *, new: bool) -> None:
    """Raise NeedsOperator where the log lacks changes that are captured.

    Of a source that is not `new`, only where it is certain; what may be so is a warning in the log.
    """
    for gap in gaps(database, names):
        if new or gap.is_named:
            raise NeedsOperator(f"the server's log lacks changes that are captured: {gap.what}", hint=gap.hint)
        _log.warning("the server's log may lack changes that are captured: %s. %s", gap.what, gap.hint)


def gaps(database: Database, names: Mysql) -> list[Gap]:
    """Return what the log lacks of what is captured."""
    lacking = []
    status = log_status(database)
    only, ignored = (_split_list(status.get(name)) for name in ("Binlog_Do_DB", "Binlog_Ignore_DB"))
    named = {name.partition(".")[0] for name in names.tables} or set(names.databases)
    captured = named or databases(database)
    if out := sorted(captured - only if only else captured & ignored):
        setting = (
            f"binlog_do_db = {','.join(sorted(only))}" if only else f"binlog_ignore_db = {','.join(sorted(ignored))}"
        )
        lacking.append(
            Gap(
                f"{setting} keeps {_join_names(out)} out of it",
                "Take the setting out of the server's configuration and restart it, or name those databases alone that its log "
                "has in the source's databases.",
                bool(named),
            )
        )
    if (database.variable("log_slave_updates") or "").upper() in {"OFF", "0"} and _is_replica(database):
        lacking.append(
            Gap(
                "it is a replica with log_slave_updates = OFF, so what it applies is not in its own log",
                "Set log_slave_updates = ON in its configuration and restart it, or capture the server that it replicates.",
                False,
            )
        )
    return lacking


def databases(database: Database) -> set[str]:
    """Return the databases that the user may see, without the server's own."""
    return {str(name) for (name,) in database.rows("select schema_name from information_schema.schemata")} - set(SYSTEM)


def unmatched(database: Database, names: Mysql) -> list[str]:
    """Return what the edge's file names and the user does not see in the server, a line each."""
    if not (names.databases or names.tables):
        return []
    there = databases(database)
    lines = []
    if not names.tables:
        lines = [_line("database", name, there) for name in names.databases if name not in there]
    query = "select table_name from information_schema.tables where table_schema = %s"
    tables = {
        of: {f"{of}.{table}" for (table,) in database.rows(query, of)}
        for of in {name.partition(".")[0] for name in names.tables}
        if of in there
    }
    for name in names.tables:
        of, _, _ = name.partition(".")
        if of not in there:
            lines.append(_line("database", of, there))
        elif name not in tables[of]:
            lines.append(_line("table", name, tables[of]))
    return list(dict.fromkeys(lines))


def _line(kind: str, name: str, there: set[str]) -> str:
    alike = sorted(other for other in there if other.lower() == name.lower())
    if alike:
        return f"there is no {kind} {name}, but {_join_names(alike)}: names are compared exactly"
    return f"there is no {kind} {name}, or the edge's user may not see it"


def _is_replica(database: Database) -> bool:
    if database.is_mariadb:
        # A user with the documented privileges may not see more than whether a replica runs.
        with suppress(NeedsOperator):
            return bool(database.rows("show all slaves status"))
        return any(int(count) > 0 for _, count in database.rows("show global status like 'Slaves_running'"))
    return bool(database.rows("show replica status" if database.release >= SHOW_REPLICAS else "show slave status"))


def _split_list(setting: object) -> set[str]:
    return {name.strip() for name in str(setting or "").split(",") if name.strip()}


def _join_names(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
