"""Making a source: what its server needs, and its checkpoint, in an order that any crash leaves something `init` can finish.

The state folder is held meanwhile, so no edge runs. The engine does the work (edge/postgres/making.py, edge/mysql/making.py).
"""

from collections.abc import Callable

from edge.checkpoint import Checkpoint
from edge.engine import Adoption, engine_of
from edge.snapshot.folder import Request, SnapshotFolder
from headrace.configuration.edge import EdgeFile

__all__ = ["Adoption", "initialise"]


def initialise(
    config: EdgeFile, adoption: Adoption | None, say: Callable[[str], None], *, snapshot: bool = False
) -> Checkpoint:
    """Make, finish, or only verify what the source needs, and return its checkpoint; `say` what was made.

    `snapshot` asks for a snapshot of all tables; so does the configuration, but only for a source that is not made yet.
    Raises NeedsOperator when what exists cannot be what a former `init` left.
    """
    engine = engine_of(config)
    with engine.state.locked():
        checkpoint: Checkpoint | None = engine.state.read(config.source.name)
        is_new = checkpoint is None or checkpoint.stage == "making"
        if snapshot or (is_new and config.snapshot.mode == "initial"):
            # Ahead of the source, so that a crash leaves none without it; the request waits for the edge.
            SnapshotFolder(engine.state.folder, config.source.name).ask_once(Request(kind="snapshot"))
            say("Asked for a snapshot of every published table: 'headrace edge run' begins with it")
        return engine.initialise(checkpoint, adoption, say)
