"""Making a PostgreSQL source: publication, slot and checkpoint, in an order that any crash leaves something `init` can finish.

The order is: a checkpoint in the stage `making`, the publication, the slot, the checkpoint in the stage `made`. So a slot
next to a `making` checkpoint is ours, and nothing was ever sent from it. Nothing that exists is dropped, and a slot that
`init` did not make is taken over only on request (`adopt`).
"""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from edge.engine import Adoption
from edge.postgres.catalog import check_publication, publication_oid
from edge.postgres.checkpoint import PostgresCheckpoint, format_lsn
from edge.postgres.connection import Database
from edge.postgres.errors import CAPTURE_AGAIN
from edge.postgres.publishing import find_refused, make_publication
from edge.postgres.replication import ReplicationStream, System
from edge.postgres.slot import Slot, check_failover, check_kind, check_log_end, check_server, check_system, find_slot
from edge.postgres.visibility import running
from edge.progress.checkpoint import State
from headrace.configuration.edge import Postgresql
from headrace.errors import NeedsOperator
from headrace.position import Position, new_epoch


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
        self.database.rows("set statement_timeout = 0")
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
        made = msgspec.structs.replace(
            checkpoint,
            stage="made",
            confirmed_lsn=format_lsn(confirmed),
            publication_oid=publication_oid(self.database, checkpoint.publication),
            # What the slot does not send any more may be committed and not be visible yet.
            unseen=running(self.database) or msgspec.UNSET,
        )
        self.state.write(made)
        self.report(f"Wrote checkpoint {self.state.path}: epoch {made.position.epoch}")
        return made

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
