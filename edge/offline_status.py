"""Where a source is: its checkpoint and its server, side by side, for a person or a script."""

from edge.engine_registry import engine_of
from edge.snapshot.store import SnapshotStore
from edge.snapshot.table_history import TableHistory
from headrace.configuration.edge import EdgeFile
from headrace.errors import ReplicationError
from headrace.status.answer import SourceStatus


def position_and_server(config: EdgeFile) -> dict[str, str | int | None]:
    """Return names and values; those of a checkpoint, or of something of the server, that does not exist are None."""
    engine = engine_of(config)
    checkpoint = engine.state.read(config.source.name)
    return {
        "source": config.source.name,
        "acknowledged": checkpoint.acknowledged if checkpoint else None,
        "spooled": checkpoint.spooled or None if checkpoint else None,
        "epoch": checkpoint.position.epoch if checkpoint else None,
    } | engine.server_status(checkpoint)


def durable(config: EdgeFile) -> list[SourceStatus]:
    """Return the status of the edge's source by its checkpoint and, if it answers, its server; for `headrace status`."""
    engine = engine_of(config)
    checkpoint = engine.state.read(config.source.name)
    running = engine.state.in_use()
    warnings, retained = [], None
    try:
        retained = engine.server_status(checkpoint)["retained_wal_bytes"]
    except ReplicationError as error:
        warnings.append(error.message)
    warnings += TableHistory(engine.state.folder, config.source.name).warnings.values()
    warnings += SnapshotStore(engine.state.folder, config.source.name).plan().failures()
    return [
        SourceStatus(
            source=config.source.name,
            state="running" if running else "not running",
            reason="" if checkpoint else f"no checkpoint in {engine.state.path}: 'headrace edge init' was not run",
            position=checkpoint.acknowledged if checkpoint else None,
            retained_wal_bytes=retained if isinstance(retained, int) else None,
            warnings=warnings,
        )
    ]
