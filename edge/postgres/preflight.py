"""Opening the log: every check that has to hold before a single change is read, in one place.

Guarantees that a stream is opened only where the checkpoint, the server, the publication and the slot agree. Nothing is
started here: the caller starts the stream when the rest is ready for it.
"""

import logging

from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.connection import Database
from edge.postgres.failover import follow, guard
from edge.postgres.publication import check_publication
from edge.postgres.replication import ReplicationStream
from edge.postgres.slot import check_server, check_slot, check_system
from headrace.configuration.edge import Postgresql
from headrace.errors import NeedsOperator

_log = logging.getLogger(__name__)


def open_stream(
    config: Postgresql, source: str, checkpoint: PostgresCheckpoint, former_pid: int
) -> tuple[ReplicationStream, Database]:
    """Return a checked replication connection, and an ordinary one beside it.

    `former_pid` is the server's process of this edge's connection before, 0 for none: the server may not have noticed yet
    that it is gone, and is told so. Raises NeedsOperator, NotConnected, or CheckpointChanged.
    """
    if (config.slot, config.publication, config.database) != (
        checkpoint.slot,
        checkpoint.publication,
        checkpoint.database,
    ):
        raise NeedsOperator(
            f"the checkpoint is of slot {checkpoint.slot!r}, publication {checkpoint.publication!r} and database "
            f"{checkpoint.database!r}; the configuration names others",
            hint="Put the names back into the configuration, or give this one a state folder of its own.",
        )
    database = Database(config, source)
    try:
        check_server(database)
        stream = ReplicationStream(config, source)
        try:
            system = stream.identify()
            check_system(system, checkpoint)
            if (changed := follow(stream, database, system, checkpoint)) is not None:
                raise changed
            check_publication(database, checkpoint)
            slot = check_slot(database, checkpoint)
            if (changed := guard(database, slot, checkpoint)) is not None:
                raise changed
            if former_pid and slot.active_pid == former_pid:
                _log.info("ending the server's process %d of the connection that was lost", former_pid)
                database.value("select pg_terminate_backend(%s)", former_pid)
        except BaseException:
            stream.close()
            raise
    except BaseException:
        database.close()
        raise
    return stream, database
