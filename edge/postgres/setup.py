"""Making a PostgreSQL source, in an order that any crash leaves something `init` can finish; and retiring it.

The order is: a checkpoint in the stage `making`, the publication, the slot, the checkpoint in the stage `made`. So a slot
next to a `making` checkpoint is ours, and nothing was ever sent from it. Nothing that exists is dropped, and a slot that
`init` did not make is taken over only on request (`adopt`).

What `headrace edge retire` removes is these two and nothing else; a slot which somebody reads is left alone, and looking
changes nothing. What is missing already is no error: a retirement that was cut is finished by running it again.
"""

from collections.abc import Callable
from typing import NamedTuple, Self

import msgspec

from edge.engine import Adoption
from edge.postgres.catalog import check_publication, publication_oid
from edge.postgres.checkpoint import PostgresCheckpoint, format_lsn
from edge.postgres.connection import Database
from edge.postgres.errors import CAPTURE_AGAIN, quoted
from edge.postgres.publishing import find_refused, make_publication
from edge.postgres.replication import ReplicationStream, System
from edge.postgres.slot import (
    Slot,
    check_failover,
    check_kind,
    check_log_end,
    check_server,
    check_system,
    find_slot,
    retained_bytes,
)
from edge.postgres.visibility import running
from edge.progress.checkpoint import State
from headrace.configuration.edge import Postgresql
from headrace.errors import NeedsOperator, NotConnected
from headrace.position import Position, new_epoch

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


def initialise(
    source: str,
    names: Postgresql,
    state: State[PostgresCheckpoint],
    checkpoint: PostgresCheckpoint | None,
    adoption: Adoption | None,
    report: Callable[[str], None],
) -> PostgresCheckpoint:
    """Make, finish, or only verify what the source needs, and return its checkpoint; `report` takes what was made.

    Raises NeedsOperator when what exists cannot be what a former `init` left.
    """
    stream = ReplicationStream(names, source)
    try:
        system = stream.identify()
    finally:
        stream.close()
    with Database(names, source) as database:
        check_server(database)
        check_failover(names, database)
        return SourceSetup(source, names, state, system, database, report).run(checkpoint, adoption)


#: Transactions of any database that have written, the oldest first.
_WRITING = """
select * from (
    select 'process ' || pid || ' (' || coalesce(nullif(application_name, ''), usename::text, 'unknown') || ')',
           to_char(xact_start, 'YYYY-MM-DD HH24:MI:SS') as began
    from pg_stat_activity where backend_xid is not null and pid <> pg_backend_pid()
    union all
    select 'prepared transaction ' || quote_literal(gid) || ' of database ' || database,
           to_char(prepared, 'YYYY-MM-DD HH24:MI:SS')
    from pg_prepared_xacts
) writing order by began limit 5
"""


class SourceSetup(NamedTuple):
    """What setting up one source needs."""

    source: str
    names: Postgresql
    state: State[PostgresCheckpoint]
    system: System
    database: Database
    report: Callable[[str], None]

    def run(self, checkpoint: PostgresCheckpoint | None, adoption: Adoption | None) -> PostgresCheckpoint:
        """Make, finish or verify publication, slot and checkpoint."""
        names = self.names
        slot = find_slot(self.database, names.slot)
        if adoption is not None:
            return self._adopt(checkpoint, slot, adoption)
        if checkpoint is None:
            if slot is not None:
                raise NeedsOperator(
                    f"slot {slot.name!r} exists, and there is no checkpoint in {self.state.path}",
                    hint="If it is another edge's, name another slot in [source.postgresql] slot. If this edge's disk was "
                    "lost, take the slot over at the position that 'headrace bridge positions' prints: "
                    "'headrace edge init --adopt --position POSITION'.",
                )
            checkpoint = self._draft(Position.start(new_epoch()))
            self.state.write(checkpoint)
        check_system(self.system, checkpoint)
        if checkpoint.stage == "made":
            return self._verify(checkpoint, slot)
        self._publish()
        if slot is None:
            slot = self._make_slot()
        else:
            check_kind(slot, names.database)
        return self._complete(checkpoint, slot.confirmed)

    def _verify(self, checkpoint: PostgresCheckpoint, slot: Slot | None) -> PostgresCheckpoint:
        if slot is None:
            raise NeedsOperator(
                f"checkpoint {self.state.path} names slot {checkpoint.slot!r}, which does not exist",
                hint=f"Changes after {checkpoint.confirmed_lsn} that were not captured are lost. {CAPTURE_AGAIN}",
            )
        if (slot.name, self.names.publication) != (checkpoint.slot, checkpoint.publication):
            raise NeedsOperator(
                f"checkpoint {self.state.path} is of slot {checkpoint.slot!r} and publication {checkpoint.publication!r}",
                hint="Put these names back into the configuration, or give this one a state folder of its own.",
            )
        check_kind(slot, checkpoint.database)
        if self.system.timeline == checkpoint.timeline:
            check_log_end(self.system.lsn, checkpoint)
        check_publication(self.database, checkpoint)
        if self.names.failover and not slot.failover:
            self._make_failover(slot)
        self.report(
            f"Already made: slot {checkpoint.slot}, publication {checkpoint.publication}, checkpoint {self.state.path}"
        )
        return checkpoint

    def _draft(self, position: Position) -> PostgresCheckpoint:
        names = self.names
        return PostgresCheckpoint(
            source=self.source,
            stage="making",
            acknowledged=str(position),
            confirmed_lsn=format_lsn(0),
            system_identifier=self.system.identifier,
            timeline=self.system.timeline,
            database=names.database,
            slot=names.slot,
            publication=names.publication,
            publication_oid=0,
        )

    def _publish(self) -> None:
        names = self.names
        if publication_oid(self.database, names.publication):
            self.report(f"Found publication {names.publication}: used as it is")
            for table in find_refused(self.database, names.publication):
                self.report(
                    f"The server refuses updates and deletes of {table.quoted}, which it publishes: {table.remedy}"
                )
            return
        make_publication(self.database, names.publication, names.tables, names.row_filters, self.report)

    def _make_slot(self) -> Slot:
        name = self.names.slot
        self.report(f"Making slot {name} (waits for the transactions that run now)")
        for waited in self.database.rows(_WRITING):
            self.report("Waits for {}, which has been writing since {}".format(*waited))
        # It takes as long as they do, and prepared ones end when somebody ends them.
        self.database.wait_for_all()
        more = ", failover => true" if self.names.failover else ""
        lsn = self.database.value(
            f"select lsn::text from pg_create_logical_replication_slot(%s, 'pgoutput'{more})",  # noqa: S608 - ours.
            name,
        )
        slot = find_slot(self.database, name)
        if slot is None:
            raise NeedsOperator(f"slot {name!r} vanished while it was made", hint="Run 'headrace edge init' again.")
        self.report(f"Made slot {name}: changes that commit from {lsn} on are captured")
        return slot

    def _make_failover(self, slot: Slot) -> None:
        stream = ReplicationStream(self.names, self.source)
        try:
            stream.make_failover(slot.name)
        finally:
            stream.close()
        self.report(f"Made slot {slot.name} a failover slot: standbys with sync_replication_slots keep it ready")

    def _complete(self, checkpoint: PostgresCheckpoint, confirmed: int) -> PostgresCheckpoint:
        completed = msgspec.structs.replace(
            checkpoint,
            stage="made",
            confirmed_lsn=format_lsn(confirmed),
            publication_oid=publication_oid(self.database, checkpoint.publication),
            # What the slot does not send any more may be committed and not be visible yet.
            unseen=running(self.database) or msgspec.UNSET,
        )
        self.state.write(completed)
        self.report(f"Wrote checkpoint {self.state.path}: epoch {completed.position.epoch}")
        return completed

    def _adopt(
        self, checkpoint: PostgresCheckpoint | None, slot: Slot | None, adoption: Adoption
    ) -> PostgresCheckpoint:
        names = self.names
        if checkpoint is not None:
            raise adoption.refused(self.state)
        if slot is None:
            raise NeedsOperator(
                f"there is no slot {names.slot!r} to adopt",
                hint="Run 'headrace edge init' without --adopt for a new slot and epoch, and copy the tables again.",
            )
        check_kind(slot, names.database)
        if slot.active_pid:
            raise NeedsOperator(
                f"slot {slot.name!r} is in use by process {slot.active_pid} of the server",
                hint="Stop the edge that reads it first.",
            )
        if not publication_oid(self.database, names.publication):
            raise NeedsOperator(
                f"publication {names.publication!r} does not exist, so changes were not published",
                hint=CAPTURE_AGAIN,
            )
        adopted = self._complete(self._draft(adoption.start), slot.confirmed)
        self.report(f"Adopted slot {slot.name} at {adopted.confirmed_lsn}, going on after {adopted.tail}")
        return adopted


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
            self._database.wait_for_all()
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
