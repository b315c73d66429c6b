"""Where a source stands: its checkpoint and its slot, side by side, for a person or a script."""

from edge.checkpoint import State
from edge.postgres.lsn import format_lsn
from edge.postgres.session import Database
from edge.postgres.slot import find_slot, retained_bytes
from headrace.configuration.edge import EdgeFile


def standing(config: EdgeFile) -> dict[str, str | int | None]:
    """Return names and values; those of a checkpoint or slot that does not exist are None."""
    checkpoint = State(config.beside(config.state.folder)).read(config.source.name)
    database = Database(config.source.postgresql, config.source.name)
    try:
        slot = find_slot(database, config.source.postgresql.slot)
        retained = retained_bytes(database, slot) if slot else None
    finally:
        database.close()
    return {
        "source": config.source.name,
        "acknowledged": checkpoint.acknowledged if checkpoint else None,
        "confirmed_lsn": checkpoint.confirmed_lsn if checkpoint else None,
        "epoch": checkpoint.position.epoch if checkpoint else None,
        "slot": slot.name if slot else None,
        "slot_confirmed_lsn": format_lsn(slot.confirmed) if slot else None,
        "slot_wal_status": slot.wal_status if slot else None,
        "slot_active_pid": slot.active_pid if slot else None,
        "retained_wal_bytes": retained,
    }
