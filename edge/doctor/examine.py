"""All checks of an edge's file, those of its engine among them."""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from edge.database import Database as AnyDatabase
from edge.doctor import machine, managed
from edge.engine_registry import engine_of
from headrace.configuration.edge import EdgeFile
from headrace.errors import ReplicationError
from headrace.findings import Finding, run

D = TypeVar("D", bound=AnyDatabase)


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

    names = config.source.postgresql
    assert names is not None

    def checks(database: Database, checkpoint: Any) -> Iterator[Finding]:
        made = checkpoint if checkpoint is not None and checkpoint.stage == "made" else None
        provider = managed.postgres_provider(database)
        found = (*postgres.CHECKS, *slots.CHECKS, *tables.CHECKS)
        for finding in run(found, postgres.CheckContext(config, names, database, made)):
            yield managed.fitted(finding, provider)

    return _connected(config, lambda: Database(names, config.source.name), checks)


def _mysql(config: EdgeFile) -> Iterator[Finding]:
    from edge.doctor import mysql  # noqa: PLC0415 - as above.
    from edge.mysql.connection import Database  # noqa: PLC0415

    names = config.source.mariadb or config.source.mysql
    assert names is not None

    def checks(database: Database, checkpoint: Any) -> Iterator[Finding]:
        provider = managed.mysql_provider(database)
        for finding in run(mysql.CHECKS, mysql.CheckContext(config, names, database, checkpoint)):
            yield managed.fitted(finding, provider)

    return _connected(config, lambda: Database(names, config.source.name), checks)


def _connected(
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
