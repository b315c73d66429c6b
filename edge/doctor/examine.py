"""All checks of an edge's file, those of its engine among them."""

from collections.abc import Iterator

from edge.doctor import machine, managed
from headrace.configuration.edge import EdgeFile
from headrace.errors import ReplicationError
from headrace.findings import Finding, run


def examine(config: EdgeFile) -> Iterator[Finding]:
    """Yield what all checks find."""
    if config.source.postgresql is not None:
        yield from _postgres(config)
    else:
        yield from _mysql(config)
    yield from run(machine.CHECKS, config)


def _postgres(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import postgres, slots, tables  # noqa: PLC0415 - the driver is imported for its engine only.
    from edge.postgres.connection import Database  # noqa: PLC0415
    from edge.postgres.engine import PostgresEngine  # noqa: PLC0415

    names = config.source.postgresql
    assert names is not None
    try:
        checkpoint = PostgresEngine(config, names).state.read(config.source.name)
        database = Database(names, config.source.name)
    except ReplicationError as error:
        yield Finding(
            "connection", "wrong", error.message, error.hint or "Is the server running, and reachable from here?"
        )
        return
    made = checkpoint if checkpoint is not None and checkpoint.stage == "made" else None
    try:
        provider = managed.postgres_provider(database)
        checks = (*postgres.CHECKS, *slots.CHECKS, *tables.CHECKS)
        for finding in run(checks, postgres.CheckContext(config, names, database, made)):
            yield managed.fitted(finding, provider)
    finally:
        database.close()


def _mysql(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import mysql  # noqa: PLC0415 - as above.
    from edge.engine_registry import engine_of  # noqa: PLC0415
    from edge.mysql.connection import Database  # noqa: PLC0415

    names = config.source.mariadb or config.source.mysql
    assert names is not None
    try:
        checkpoint = engine_of(config).state.read(config.source.name)
        database = Database(names, config.source.name)
    except ReplicationError as error:
        yield Finding(
            "connection", "wrong", error.message, error.hint or "Is the server running, and reachable from here?"
        )
        return
    try:
        provider = managed.mysql_provider(database)
        for finding in run(mysql.CHECKS, mysql.CheckContext(config, names, database, checkpoint)):
            yield managed.fitted(finding, provider)
    finally:
        database.close()
