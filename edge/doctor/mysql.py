"""What an edge needs of a MariaDB or MySQL server: version, settings, its number, the binlog and how long it is kept, tables.

It only reads, on one ordinary connection. The statements that it prints are for an administrator; they hold until the server
is restarted, so they belong into its configuration too.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from edge.doctor.machine import policy_findings, tls
from edge.mysql import checks, column_text
from edge.mysql.checkpoint import MysqlCheckpoint
from edge.mysql.connection import Database
from edge.mysql.coverage import (
    SYSTEM,
    Chosen,
    described_columns,
    gaps,
    leaves_generated_out,
    tables_with_generated,
    unmatched,
)
from edge.mysql.replication import check_file, dump_threads, noted_dump_thread, replicas
from edge.mysql.snapshot_rows import quoted
from edge.mysql.sql_tokens import tokens
from edge.records.column_policy import Policy
from headrace.configuration.edge import EdgeFile, Mysql
from headrace.findings import Check, Finding

#: A log that is kept for less than this, in seconds, is gone after a long weekend.
_LONG_ENOUGH = 4 * 86_400
_TRANSACTIONAL = {"innodb", "rocksdb", "tokudb", "ndbcluster"}


class CheckContext(NamedTuple):
    """What the checks look at."""

    config: EdgeFile
    names: Mysql
    database: Database
    checkpoint: MysqlCheckpoint | None


def connection(context: CheckContext) -> Iterator[Finding]:
    """Look at the server's kind and version, and at TLS."""
    configured = "mariadb" if context.config.source.mariadb is not None else "mysql"
    kind = "mariadb" if context.database.is_mariadb else "mysql"
    summary = f"{context.database.version} at {context.names} as {context.names.user}"
    if kind != configured:
        yield Finding("connection", "wrong", f"{summary}: that is {kind}", f"Name it in [source.{kind}].")
    elif kind == "mysql":
        yield Finding("connection", "ok", f"{summary}; what was tested with MySQL is in docs/mariadb.md")
    else:
        yield Finding("connection", "ok", summary)
    yield tls(context.names, "rows", on=context.names.sslmode != "disable")


def settings(context: CheckContext) -> Iterator[Finding]:
    """Look at what the log carries."""
    for setting in checks.settings(context.database):
        value = setting.found or "empty"
        if setting.holds:
            yield Finding(setting.name, "ok", f"{value}: {setting.why}")
        else:
            yield Finding(
                setting.name, "wrong", f"{value}, {setting.why} needs {setting.wanted or 'nothing'}", setting.sql
            )


def coverage(context: CheckContext) -> Iterator[Finding]:
    """Check whether the log has the changes of what is captured, and whether what the file names is there."""
    missing = gaps(context.database, context.names)
    for gap in missing:
        yield Finding("coverage", "wrong", f"the log lacks changes that are captured: {gap.what}", gap.hint)
    if not missing:
        yield Finding("coverage", "ok", "no filter keeps captured databases out of the log")
    for line in unmatched(context.database, context.names):
        yield Finding("names", "warning", line, "Correct databases or tables of the source in the edge's file.")


def retention(context: CheckContext) -> Iterator[Finding]:
    """Look at how long the server keeps its log."""
    seconds = checks.retention_seconds(context.database)
    limit, setting = checks.retention_bytes(context.database)
    by_size = f", and no more of it than {limit:,} bytes ({setting})" if limit else ""
    if seconds and seconds < _LONG_ENOUGH:
        yield Finding(
            "retention",
            "warning",
            f"the binlog is kept for {seconds / 3600:.0f} hours{by_size}, whoever has read it",
            f"set global binlog_expire_logs_seconds = {_LONG_ENOUGH * 2}",
        )
    elif limit:
        by_age = f"for {seconds / 86_400:.0f} days" if seconds else "without limit of age"
        yield Finding(
            "retention",
            "warning",
            f"the binlog is kept {by_age}{by_size}, whoever has read it: a busy day may remove what an edge still needs",
            f"set global {setting} = 0, and watch the disk; or leave it above what the longest outage writes",
        )
    else:
        yield Finding(
            "retention",
            "ok",
            f"the binlog is kept for {seconds / 86_400:.0f} days" if seconds else "the binlog is kept without limit",
        )


def server_id(context: CheckContext) -> Iterator[Finding]:
    """Check whether the edge's number is its own."""
    number = context.names.server_id
    if number == int(context.database.value("select @@global.server_id")):
        yield Finding("server_id", "wrong", f"{number} is the server's own", "Give the edge another server_id.")
        return
    hosts = {int(row[0]) for row in replicas(context.database)}
    if number in hosts and not _is_own(context):
        yield Finding("server_id", "wrong", f"{number} is used by another replica", "Give the edge another server_id.")
    else:
        yield Finding(
            "server_id", "ok", f"{number}, one of {len(hosts)} that read the binlog" if hosts else f"{number}"
        )


def _is_own(context: CheckContext) -> bool:
    """Return whether this edge has the number: it runs, or the server has not noticed yet that it is gone."""
    from edge.mysql.engine import MysqlEngine  # noqa: PLC0415 - the engine imports the doctor's neighbours.

    kind = "mariadb" if context.database.is_mariadb else "mysql"
    state = MysqlEngine(context.config, context.names, kind).state  # type: ignore[arg-type]
    return state.in_use() or noted_dump_thread(state.folder, context.database) in dump_threads(context.database)


def checkpoint(context: CheckContext) -> Iterator[Finding]:
    """Check whether the binlog still continues the checkpoint."""
    existing = context.checkpoint
    if existing is None:
        yield Finding("checkpoint", "warning", "none yet", f"headrace edge init --config {context.config.path}")
        return
    checks.check_identity(context.database, existing)
    log = checks.check_log(context.database, existing)
    checks.check_gtids(context.database, existing)
    check_file(context.names, existing.source, existing)
    yield Finding(
        "checkpoint", "ok", f"after {existing.place}; {log.retained(existing.confirmed):,} bytes of binlog are after it"
    )


def tables(context: CheckContext) -> Iterator[Finding]:
    """Look at tables without key, tables that do not roll back, and character sets that are not read."""
    chosen = Chosen(context.names.databases, context.names.tables, Policy.of(context.config))
    listed = [
        (str(database), str(table), str(engine or ""), bool(keyed))
        for database, table, engine, keyed in context.database.rows(_TABLES)
        if str(database) not in SYSTEM and chosen(str(database), str(table))
    ]
    yield Finding("tables", "ok" if listed else "warning", f"{len(listed)} are captured")
    for problem, rows in (
        ("have no key: their records have none, and a copy is one long statement", [it for it in listed if not it[3]]),
        ("do not roll back", [it for it in listed if it[2].lower() not in _TRANSACTIONAL]),
    ):  # fmt: skip
        if rows:
            yield Finding("tables", "warning", f"{len(rows)} {problem}: {_names([(it[0], it[1]) for it in rows])}")
    names = {(it[0], it[1]) for it in listed}
    by_statement = [name for name in _pairs(context.database.rows(_BY_STATEMENT)) if name in names]
    if by_statement:
        yield Finding(
            "versions",
            "wrong",
            f"{len(by_statement)} tables have versions by transaction and are logged as statements: {_names(by_statement)}",
            "Let ROW START and ROW END be timestamp(6).",
        )
    if leaves_generated_out(context.database):
        generated = [name for name in tables_with_generated(context.database) if name in names]
        if generated:
            yield Finding(
                "generated columns",
                "warning",
                f"{len(generated)} tables have some, which no record has: this server's log lacks them with updates and deletes: "
                f"{_names(generated)}",
                "Compute them where the records are read, or let the application write ordinary columns.",
            )
    readable = column_text.list_names()
    unread = {
        (str(database), str(table), str(name))
        for database, table, name in context.database.rows(_CHARSETS)
        if (str(database), str(table)) in names and str(name) not in readable
    }
    for database, table, name in sorted(unread):
        summary = f"{database}.{table} has text in {name}, which is not read"
        fix = f"alter table {quoted(database)}.{quoted(table)} convert to character set utf8mb4"
        yield Finding("character set", "wrong", summary, fix)


def policy(context: CheckContext) -> Iterator[Finding]:
    """Look for rules of the policy that match nothing, and for tables to which one cannot apply."""
    rules = Policy.of(context.config)
    if not rules.has_rules:
        return
    yield from policy_findings(rules, list(described_columns(context.database, context.names)))


def foreign_keys(context: CheckContext) -> Iterator[Finding]:
    """Look for tables whose rows a foreign key changes: the server does that below its log, but for newer releases of MySQL.

    What a foreign key does is in `information_schema.referential_constraints`, which is empty for a user that may only SELECT. So
    the table's own statement is read.
    """
    if (context.database.variable("innodb_native_foreign_keys") or "").upper() == "OFF":
        yield Finding("foreign keys", "ok", "rows that CASCADE or SET NULL changes are in the log")
        return
    chosen = Chosen(context.names.databases, context.names.tables, Policy.of(context.config))
    changed = [
        table for table in _pairs(context.database.rows(_REFERRING)) if chosen(*table) and _cascades(context, *table)
    ]
    if (context.database.variable("innodb_native_foreign_keys") or "").upper() == "OFF":
        yield Finding("foreign keys", "ok", "rows that CASCADE or SET NULL changes are in the log")
    elif changed:
        yield Finding(
            "foreign keys",
            "warning",
            f"{len(changed)} tables have rows that CASCADE or SET NULL changes, which is not in the log: {_names(changed)}",
            "Let the application change such rows itself, or copy the tables now and then: headrace edge snapshot --replace. "
            "MySQL 9.7 logs them, with innodb_native_foreign_keys = OFF",
        )
    else:
        yield Finding("foreign keys", "ok", "none changes rows of captured tables by CASCADE or SET NULL")


def _cascades(context: CheckContext, database: str, table: str) -> bool:
    """Return whether a foreign key of a table changes its rows."""
    statement = str(context.database.rows(f"show create table {quoted(database)}.{quoted(table)}")[0][1])
    words = [token.keyword for token in tokens(statement)]
    return any(
        words[at : at + 2] in (["ON", "DELETE"], ["ON", "UPDATE"])
        and (words[at + 2 : at + 3] == ["CASCADE"] or words[at + 2 : at + 4] in (["SET", "NULL"], ["SET", "DEFAULT"]))
        for at in range(len(words))
    )


def _pairs(rows: list[tuple[Any, ...]]) -> list[tuple[str, str]]:
    return [(str(database), str(table)) for database, table in rows]


def _names(tables: list[tuple[str, str]]) -> str:
    return ", ".join(f"{database}.{table}" for database, table in tables[:5]) + (", ..." if len(tables) > 5 else "")


_TABLES = """
    select t.table_schema, t.table_name, t.engine, k.table_name is not null
    from information_schema.tables t left join (
        select distinct table_schema, table_name from (
            select table_schema, table_name, index_name from information_schema.statistics
            where non_unique = 0 group by 1, 2, 3
            having index_name = 'PRIMARY'
                or sum(nullable = 'YES' or sub_part is not null or column_name is null) = 0
        ) as i
    ) as k on k.table_schema = t.table_schema and k.table_name = t.table_name
    where t.table_type in ('BASE TABLE', 'SYSTEM VERSIONED') order by 1, 2
"""
_CHARSETS = """
    select distinct table_schema, table_name, character_set_name from information_schema.columns
    where character_set_name is not null
"""
_BY_STATEMENT = """
    select table_schema, table_name from information_schema.columns
    where generation_expression = 'ROW START' and data_type = 'bigint' order by 1, 2
"""
_REFERRING = """
    select distinct table_schema, table_name from information_schema.key_column_usage
    where referenced_table_name is not null order by 1, 2
"""
CHECKS: tuple[Check[CheckContext], ...] = (
    connection,
    settings,
    coverage,
    retention,
    server_id,
    checkpoint,
    tables,
    policy,
    foreign_keys,
)
