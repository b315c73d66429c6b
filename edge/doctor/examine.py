"""All checks of an edge's file, those of its engine among them.

What fixes a finding on a server that a provider manages: nobody is a superuser there, and settings are set from outside.
"""

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from edge.debezium.checkpoint import compared_settings
from edge.debezium.child import EngineProcess, class_path
from edge.debezium.session import SILENCE_SECONDS
from edge.doctor import machine
from edge.engine_registry import engine_of
from edge.snapshot.ports import Database as AnyDatabase
from headrace.configuration.databases import UNPROVEN, Debezium
from headrace.configuration.edge import EdgeFile
from headrace.errors import ReplicationError
from headrace.findings import Finding, run

#: That Debezium 3.6 runs on.
_OLDEST_JAVA = 21
_SET = re.compile(r"alter system set (\w+) = ('[^']*'|[^; ]+);(.*)", re.DOTALL)
_SET_GLOBAL = re.compile(r"set global (\w+) = ('[^']*'|[^;, ]+)(.*)", re.DOTALL)
_REPLICATION = re.compile(r"Run as a superuser: alter role (\S+) replication;")
_LEVEL = "Run as a superuser: alter system set wal_level = 'logical'; then restart the server."


class Provider(NamedTuple):
    """Who manages a server, and how settings are set there."""

    name: str
    #: Where a setting is set: "in the parameter group".
    where: str
    #: What sets wal_level.
    level: str
    #: What lets a role replicate, with `{role}`.
    replication: str


AMAZON = Provider(
    "Amazon RDS or Aurora",
    "in the parameter group",
    "Set rds.logical_replication = 1 in the parameter group, and restart the instance.",
    "grant rds_replication to {role};",
)
GOOGLE = Provider(
    "Google Cloud SQL",
    "as a flag of the instance",
    "Set the flag cloudsql.logical_decoding = on; the instance restarts.",
    "alter user {role} with replication;  -- as a user with cloudsqlsuperuser",
)
AZURE = Provider(
    "Azure Database",
    "as a server parameter",
    "Set the server parameter wal_level = logical, and restart the server.",
    "alter role {role} with replication;  -- as a user with azure_pg_admin",
)
_BY_ROLE = {"rds_superuser": AMAZON, "cloudsqlsuperuser": GOOGLE, "azure_pg_admin": AZURE}


def postgres_provider(database: Any) -> Provider | None:
    """Return who manages a PostgreSQL server; None for nobody that is known."""
    roles = database.value("select array_agg(rolname::text) from pg_roles where rolname = any(%s)", [*_BY_ROLE]) or []
    return next((_BY_ROLE[role] for role in roles), None)


def mysql_provider(database: Any) -> Provider | None:
    """Return who manages a MariaDB or MySQL server; None for nobody that is known."""
    if (database.variable("basedir") or "").startswith("/rdsdbbin"):
        return AMAZON
    return GOOGLE if "-google" in database.version else None


def fit_to_provider(finding: Finding, provider: Provider | None) -> Finding:
    """Return a finding with what fixes it on such a server."""
    return finding if provider is None or not finding.fix else finding._replace(fix=fix(finding.fix, provider))


def fix(text: str, provider: Provider) -> str:
    """Return what fixes a finding there, in place of what does on a server of one's own."""
    if text == _LEVEL:
        return provider.level
    if role := _REPLICATION.fullmatch(text):
        return provider.replication.format(role=role[1])
    for pattern in (_SET, _SET_GLOBAL):
        if match := pattern.fullmatch(text):
            name, value, rest = match.groups()
            if name == "binlog_expire_logs_seconds" and provider is AMAZON:
                return f"call mysql.rds_set_configuration('binlog retention hours', {int(value) // 3600})"
            restart = ", and restart the instance" if "restart" in rest else ""
            return f"Set {name} = {value.strip(chr(39))} {provider.where}{restart}."
    return text.replace("-- as a superuser", "-- as the owner of the tables")


D = TypeVar("D", bound=AnyDatabase)


def examine(config: EdgeFile) -> Iterator[Finding]:
    """Yield what all checks find."""
    if config.source.debezium is not None:
        yield from run((look_at_jars, look_at_java, look_at_server), config.source.debezium)
    elif config.source.postgresql is not None:
        yield from _postgres(config)
    else:
        yield from _mysql(config)
    yield from run(machine.CHECKS, config)


def _postgres(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import postgres, tables  # noqa: PLC0415 - the driver is imported for its engine only.
    from edge.postgres.connection import Database  # noqa: PLC0415

    names = config.source.postgresql
    assert names is not None

    def checks(database: Database, checkpoint: Any) -> Iterator[Finding]:
        complete = checkpoint if checkpoint is not None and checkpoint.stage == "made" else None
        provider = postgres_provider(database)
        all_checks = (*postgres.CHECKS, *tables.CHECKS)
        for finding in run(all_checks, postgres.CheckContext(config, names, database, complete)):
            yield fit_to_provider(finding, provider)

    return _run_connected(config, lambda: Database(names, config.source.name), checks)


def _mysql(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import mysql  # noqa: PLC0415 - as above.
    from edge.mysql.connection import Database  # noqa: PLC0415

    names = config.source.mariadb or config.source.mysql
    assert names is not None

    def checks(database: Database, checkpoint: Any) -> Iterator[Finding]:
        provider = mysql_provider(database)
        for finding in run(mysql.CHECKS, mysql.CheckContext(config, names, database, checkpoint)):
            yield fit_to_provider(finding, provider)

    return _run_connected(config, lambda: Database(names, config.source.name), checks)


def look_at_jars(names: Debezium) -> Iterator[Finding]:
    """Look for the jars of a connector of Debezium's; raise NeedsOperator where some are missing."""
    jars = class_path(names.connector)
    yield Finding("jars", "ok", f"{len(jars)} in {jars[-1].parent}")


def look_at_java(names: Debezium) -> Iterator[Finding]:
    """Look at the Java that runs Debezium's engine."""
    fix = "Install Java 21 or newer, and name it in [source.debezium] java."
    try:
        output = subprocess.run([names.java, "-version"], capture_output=True, text=True, timeout=60, check=True).stderr
    except (OSError, subprocess.SubprocessError):
        yield Finding("java", "wrong", f"{names.java} does not run", fix)
        return
    version = re.search(r'version "(\d+)', output)
    if version is None or int(version[1]) < _OLDEST_JAVA:
        yield Finding("java", "wrong", f"{names.java} is older than Java {_OLDEST_JAVA}", fix)
    else:
        yield Finding("java", "ok", f"{names.java} is Java {version[1]}")


def look_at_server(names: Debezium) -> Iterator[Finding]:
    """Look at the server by the engine, which reads and makes nothing there; raise where it cannot be asked."""
    with tempfile.TemporaryDirectory() as folder:
        process = EngineProcess(names.java, names.memory_megabytes, class_path(names.connector), Path(folder))
        try:
            process.greet(names.settings("no_data", "none"))
            server = process.hello(SILENCE_SECONDS)
        finally:
            process.close()
    if names.connector in UNPROVEN:
        yield Finding(
            "server", "warning", f"{names} is not asked: this connector was never tried", "See docs/debezium.md."
        )
        return
    yield Finding("server", "ok", f"{names} answers; its system identifier is {server.system_identifier}")
    for name, value, wanted in compared_settings(server):
        holds = value.upper() == wanted
        fix = "" if holds else f"set global {name} = '{wanted}'; -- and in the server's configuration"
        yield Finding(name, "ok" if holds else "wrong", f"is {value or 'empty'}", fix)


def _run_connected(
    config: EdgeFile, connect: Callable[[], D], checks: Callable[[D, Any], Iterator[Finding]]
) -> Iterator[Finding]:
    """Yield what an engine's checks find, given a connection and the checkpoint, or why there is none."""
    try:
        checkpoint = engine_of(config).state.read(config.source.name)
        database = connect()
    except ReplicationError as error:
        yield Finding(
            "connection", "wrong", error.message, error.hint or "Is the server running, and reachable from here?"
        )
        return
    with database:
        yield from checks(database, checkpoint)
