"""Making a source: what its server needs, and its checkpoint, in an order that any crash leaves something `init` can finish.

The state folder is held meanwhile, so no edge runs. The engine does the work (edge/postgres/setup.py, edge/mysql/setup.py).
"""

from collections.abc import Callable

import msgspec

from edge.engine import Adoption, Engine
from edge.engine_registry import engine_of
from edge.progress.checkpoint import Checkpoint
from edge.progress.spool import Spool
from edge.snapshot.store import Request, SnapshotStore
from headrace.configuration.edge import EdgeFile
from headrace.errors import ConfigurationError, NeedsOperator
from headrace.position import Position

#: What is no option for sources that Debezium reads.
NOT_BY_DEBEZIUM = "{} is not for [source.debezium]"

__all__ = ["Adoption", "alter_replica_identities", "initialise"]


def initialise(
    config: EdgeFile,
    adoption: Adoption | None,
    report: Callable[[str], None],
    *,
    snapshot: bool = False,
    replace: bool = False,
) -> Checkpoint:
    """Make, finish, or only verify what the source needs, and return its checkpoint; `report` takes what was made.

    `snapshot` requests a snapshot of all tables; so does the configuration, but only for a source that is not made yet.
    `replace` lets it take the place of what consumers have.
    Raises NeedsOperator when what exists cannot be what a former `init` left.
    """
    engine = engine_of(config)
    with engine.state.locked():
        checkpoint: Checkpoint | None = engine.state.read(config.source.name)
        is_new = checkpoint is None or checkpoint.stage == "making"
        if config.source.debezium is not None:
            # Debezium copies rows when it makes the source, as the file says, and no others.
            if snapshot:
                raise ConfigurationError(
                    NOT_BY_DEBEZIUM.format("--snapshot"), hint='Set mode = "initial" in [snapshot].'
                )
        elif snapshot or (is_new and config.snapshot.mode == "initial"):
            # Ahead of the source, so that a crash leaves none without it; the request waits for the edge.
            SnapshotStore(engine.state.folder, config.source.name).request_once(
                Request(kind="snapshot", replace=replace)
            )
            report("Requested a snapshot of every published table: 'headrace edge run' begins with it")
        spool = Spool(engine.state.folder, config.source.name, config.spool.megabytes << 20)
        kept = spool.promised() if checkpoint is None else None
        if kept is None:
            made = engine.initialise(checkpoint, adoption, report)
            if adoption is not None and config.spool.megabytes:
                report(
                    "There is no spool here. If the lost folder held one, its changes are lost too: 'headrace verify' shows"
                )
            return made
        if adoption is None or adoption.position is None:
            raise NeedsOperator(
                f"spool {spool.path} is of a former epoch, and has batches up to {kept} that may not have been sent",
                hint="Send them: 'headrace edge init --adopt --position POSITION' with the position that 'headrace bridge "
                "positions' prints. To give them up, move the spool to another folder first.",
            )
        return _with_spool(engine, engine.initialise(checkpoint, adoption, report), spool, kept, report)


def alter_replica_identities(
    config: EdgeFile, report: Callable[[str], None], consents: Callable[[list[str]], bool]
) -> None:
    """Let the log have whole old rows of tables whose rows it cannot identify, if `consents` returns true for the statements."""
    names = config.source.postgresql
    if names is None:
        raise ConfigurationError("--replica-identity is for PostgreSQL", hint="Leave it out.")
    # The driver is imported for its engine only.
    from edge.postgres.connection import Database
    from edge.postgres.publishing import identify_by_whole_rows

    with Database(names, config.source.name) as database:
        altered = identify_by_whole_rows(database, names.publication, names.tables, consents)
    report(f"Altered {len(altered)} tables to replica identity full")


def _with_spool(
    engine: Engine, checkpoint: Checkpoint, spool: Spool, kept: Position, report: Callable[[str], None]
) -> Checkpoint:
    """Let the adopted checkpoint rely on the spool that is still there: the source may have discarded what it holds."""
    try:
        spool.open(checkpoint.position, kept, checkpoint.confirmed)
        if spool.end is None:
            return checkpoint
        checkpoint = msgspec.structs.replace(checkpoint, spooled=str(spool.end))
        engine.state.write(checkpoint)
    except NeedsOperator:
        # As if nothing had been adopted.
        engine.state.path.unlink()
        raise
    finally:
        spool.close()
    report(f"Kept the spool, which has what comes after {checkpoint.acknowledged}, up to {checkpoint.spooled}")
    return checkpoint
