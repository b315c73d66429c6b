"""Where a source stands: its checkpoint and its server, side by side, for a person or a script."""

from edge.engine import engine_of
from headrace.configuration.edge import EdgeFile


def standing(config: EdgeFile) -> dict[str, str | int | None]:
    """Return names and values; those of a checkpoint, or of something of the server, that does not exist are None."""
    engine = engine_of(config)
    checkpoint = engine.state.read(config.source.name)
    return {
        "source": config.source.name,
        "acknowledged": checkpoint.acknowledged if checkpoint else None,
        "epoch": checkpoint.position.epoch if checkpoint else None,
    } | engine.standing(checkpoint)
