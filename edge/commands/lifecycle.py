"""Making a source, and taking it out at its own side: what its server needs or keeps, its checkpoint, and its state folder.

Making is in an order that any crash leaves something `init` can finish. The state folder is held meanwhile, so no edge runs.
The engine does the work (edge/postgres/setup.py, edge/mysql/setup.py).

Taking out guarantees that nothing is removed while an edge runs, while changes may be unsent unless a person insists, or
without consent; that the checkpoint goes last, so that a retirement which is cut can be run again. Called by `headrace edge
retire`.
"""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

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
            # Debezium copies rows when it makes the source, as its file configures it, and no others.
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
        spooled = spool.promised() if checkpoint is None else None
        if spooled is None:
            checkpoint = engine.initialise(checkpoint, adoption, report)
            if adoption is not None and config.spool.megabytes:
                report(
                    "There is no spool here. If the lost folder held one, its changes are lost too: 'headrace verify' shows"
                )
            return checkpoint
        if adoption is None or adoption.position is None:
            raise NeedsOperator(
                f"spool {spool.path} is of a former epoch, and has batches up to {spooled} that may not have been sent",
                hint="Send them: 'headrace edge init --adopt --position POSITION' with the position that 'headrace bridge "
                "positions' prints. To give them up, move the spool to another folder first.",
            )
        return _with_spool(engine, engine.initialise(checkpoint, adoption, report), spool, spooled, report)


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


#: What an edge leaves in its state folder, in the order in which it is removed.
_LEFT = (
    "snapshot-requests/*.json",
    "snapshot-requests",
    "snapshot.json",
    "snapshot-place.json",
    "dump-thread.json",
    "walsender.json",
    "records.json",
    "requests.json",
    "tables.json",
    "passed.json",
    "debezium-copy.frames",
    "debezium-schema-history.jsonl",
    "spool.sqlite*",
    "reserve",
    "*.new",
    "checkpoint.json",
    "lock",
)


def retire(
    config: EdgeFile,
    report: Callable[[str], None],
    consents: Callable[[], bool],
    *,
    force: bool = False,
    state_only: bool = False,
) -> bool:
    """Remove the source's slot, publication and state folder once `consents` returns true; return whether that was done.

    `report` gets what will be removed before the question, and what was removed after it. `force` gives up what is unsent;
    `state_only` leaves the server alone, as one that no longer exists. Raises NeedsOperator while an edge runs, or changes are
    unsent.
    """
    engine = engine_of(config)
    folder = engine.state.folder
    if not folder.is_dir():
        raise NeedsOperator(
            f"there is no state folder {folder}: this edge was never initialised here",
            hint="Run this on the edge's own machine, with its file. To drop a slot alone: "
            "select pg_drop_replication_slot('NAME');",
        )
    with engine.state.locked():
        checkpoint: Checkpoint | None = engine.state.read(config.source.name)
        with contextlib.ExitStack() as stack:
            server = None if state_only else stack.enter_context(engine.retirement(checkpoint))
            unsent = list(filter(None, (server.unsent if server else "", _describe_unsent(config, folder, checkpoint))))
            unsent += _open_copies(SnapshotStore(folder, config.source.name))
            if state_only:
                unsent.append("the server was not asked whether it holds changes that were not sent")
            report(f"To retire {config.source.name}:")
            for step in [*(server.steps if server else []), f"remove the state folder {folder}"]:
                report(f"  {step}")
            for why in unsent:
                report(f"  unsent: {why}")
            if unsent and not force:
                raise NeedsOperator(
                    f"{config.source.name} is not retired: {'; '.join(unsent)}",
                    hint="Run 'headrace edge run' until the source is idle and everything is accepted, stop it, and retire it "
                    "then. To give up what was not sent, add --force.",
                )
            if not consents():
                return False
            if server is not None:
                server.carry_out(report)
        removed = _remove(folder)
    report(f"Removed {removed} files of the state folder {folder}")
    return True


def _describe_unsent(config: EdgeFile, folder: Path, checkpoint: Checkpoint | None) -> str:
    """Return what the spool holds that was not acknowledged; empty for nothing."""
    spool = Spool(folder, config.source.name, config.spool.megabytes << 20)
    try:
        end = spool.promised()
    except NeedsOperator as error:
        return error.message
    if end is None or (checkpoint is not None and end <= checkpoint.position):
        return ""
    return f"spool {spool.path} holds batches up to {end}"


def _open_copies(store: SnapshotStore) -> list[str]:
    """Return which copies of tables have begun at the far side and not ended."""
    try:
        plan = store.plan()
    except NeedsOperator as error:
        return [error.message]
    return [
        f"the copy of {it.name} has not ended, and the lake would wait for its end: let it end, or cancel it and run the edge"
        for it in plan.tables
        if it.marks_open
    ]


def _remove(folder: Path) -> int:
    removed = 0
    for path in _files(folder):
        try:
            if path.is_dir():
                path.rmdir()
            else:
                path.unlink(missing_ok=True)
                removed += 1
        except OSError as error:
            raise NeedsOperator(
                f"{path} cannot be removed: {error.strerror or error}",
                hint="Remove the state folder by hand: nothing of the server is left.",
            ) from error
    # One that holds something else, such as the edge's own file, stays.
    with contextlib.suppress(OSError):
        folder.rmdir()
    return removed


def _files(folder: Path) -> Iterator[Path]:
    for pattern in _LEFT:
        yield from sorted(folder.glob(pattern))
