"""Making a source: what its server needs, and its checkpoint, in an order that any crash leaves something `init` can finish.

The state folder is held meanwhile, so no edge runs. The engine does the work (edge/postgres/making.py, edge/mysql/making.py).
"""

from collections.abc import Callable

from edge.checkpoint import Checkpoint
from edge.engine import Adoption, engine_of
from headrace.configuration.edge import EdgeFile

__all__ = ["Adoption", "initialise"]


def initialise(config: EdgeFile, adoption: Adoption | None, say: Callable[[str], None]) -> Checkpoint:
    """Make, finish, or only verify what the source needs, and return its checkpoint; `say` what was made.

    Raises NeedsOperator when what exists cannot be what a former `init` left.
    """
    engine = engine_of(config)
    with engine.state.locked():
        return engine.initialise(engine.state.read(config.source.name), adoption, say)
