"""What `headrace edge retire` removes from a PostgreSQL server: the slot and the publication that `init` made.

Guarantees that nothing but these two is dropped, that a slot which somebody reads is left alone, and that looking changes
nothing. What is missing already is no error: a retirement that was cut is finished by running it again.
"""

from collections.abc import Callable
from typing import Self

from edge.postgres.checkpoint import PostgresCheckpoint, format_lsn
from edge.postgres.connection import Database
from edge.postgres.errors import quoted
from edge.postgres.replication import ReplicationStream
from edge.postgres.slot import Slot, check_system, find_slot, retained_bytes
from headrace.configuration.edge import Postgresql
from headrace.errors import NeedsOperator, NotConnected

#: Transactions that the slot would still send, of those that commit after an LSN. Peeking confirms nothing.
_UNSENT = """
select count(*) from (
    select max(lsn) as ended
    from pg_logical_slot_peek_binary_changes(%s, null, null, 'proto_version', '1', 'publication_names', %s)
    group by xid::text
    having bool_or(get_byte(data, 0) in (ascii('I'), ascii('U'), ascii('D'), ascii('T')))
) sent where ended > %s::pg_lsn
"""
_PUBLICATION = """
select pg_has_role(p.pubowner, 'USAGE') from pg_publication p where p.pubname = %s and (%s = 0 or p.oid::int8 = %s)
"""


class PostgresRetirement:
    """Implements `edge.engine.Retirement`."""

    def __init__(self, names: Postgresql, source: str, checkpoint: PostgresCheckpoint | None) -> None:
        self._slot_name = checkpoint.slot if checkpoint else names.slot
        self._publication = checkpoint.publication if checkpoint else names.publication
        if checkpoint is not None:
            stream = ReplicationStream(names, source)
            try:
                check_system(stream.identify(), checkpoint)
            finally:
                stream.close()
        self._database = Database(names, source)
        try:
            self._slot = find_slot(self._database, self._slot_name)
            if self._slot is not None:
                _check_free(self._slot, names.database)
            oid = checkpoint.publication_oid if checkpoint else 0
            rows = self._database.rows(_PUBLICATION, self._publication, oid, oid)
            #: Whether the publication is the edge's user's to drop; None when there is none.
            self._owns = bool(rows[0][0]) if rows else None
            self.unsent = self._unsent(checkpoint)
        except BaseException:
            self._database.close()
            raise
        self.steps = [*self._slot_step(), *self._publication_step()]

    def __enter__(self) -> Self:
        """Return itself; the connection is open until the block ends."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._database.close()

    def carry_out(self, report: Callable[[str], None]) -> None:
        """Drop the slot, then the publication, and `report` each."""
        if self._slot is not None:
            self._database.rows("select pg_drop_replication_slot(%s)", self._slot_name)
            report(f"Dropped slot {self._slot_name}")
        if self._owns:
            self._database.alter(f"drop publication {quoted(self._publication)}")
            report(f"Dropped publication {self._publication}")
        elif self._owns is False:
            report(f"Left publication {self._publication} to its owner: drop publication {quoted(self._publication)};")

    def _unsent(self, checkpoint: PostgresCheckpoint | None) -> str:
        slot = self._slot
        if slot is None:
            return ""
        if checkpoint is None or checkpoint.stage != "made":
            return (
                f"there is no finished checkpoint, so what slot {slot.name} still holds is not known to have been sent"
            )
        if slot.lost:
            return f"slot {slot.name} is lost: the server removed log from {format_lsn(slot.confirmed)} on that was not sent"
        try:
            # As long as decoding what the slot retains takes.
            self._database.rows("set statement_timeout = 0")
            count = self._database.value(_UNSENT, slot.name, self._publication, checkpoint.confirmed_lsn)
        except (NeedsOperator, NotConnected) as error:
            return f"whether slot {slot.name} still holds changes could not be read: {error.message}"
        if count:
            plural = "transaction" if count == 1 else "transactions"
            return f"slot {slot.name} holds {count} {plural} after {checkpoint.confirmed_lsn} that headquarters does not have"
        return ""

    def _slot_step(self) -> list[str]:
        if self._slot is None:
            return [f"slot {self._slot_name} does not exist"]
        kept = retained_bytes(self._database, self._slot) if self._slot.restart else 0
        return [f"drop slot {self._slot_name}, for which the server retains {kept >> 20} MiB of log"]

    def _publication_step(self) -> list[str]:
        if self._owns is None:
            return [f"publication {self._publication} does not exist, or was made again by somebody else"]
        if self._owns:
            return [f"drop publication {self._publication}"]
        return [f"leave publication {self._publication}: the edge's user does not own it"]


def _check_free(slot: Slot, database: str) -> None:
    """Raise NeedsOperator unless the slot is a logical one of this database that nobody reads."""
    if slot.plugin != "pgoutput" or slot.database != database:
        raise NeedsOperator(
            f"slot {slot.name!r} is of database {slot.database!r} and plugin {slot.plugin!r}: it is not this edge's",
            hint="Check [source.postgresql] slot and database.",
        )
    if slot.active_pid:
        raise NeedsOperator(
            f"slot {slot.name!r} is in use by process {slot.active_pid} of the server",
            hint="Stop the edge that reads it first.",
        )
