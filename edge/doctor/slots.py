"""What an edge needs of a PostgreSQL server's slots: one to spare, or its own where the checkpoint stands, kept for failovers."""

from collections.abc import Iterator

from edge.doctor.postgres import CheckContext
from edge.engine_registry import engine_of
from edge.postgres.slot import check_slot, find_slot, present_slot, retained_bytes
from headrace.findings import Check, Finding

_GIGABYTE = 1 << 30
#: A transaction that is open for longer, in seconds, keeps `init` waiting and log from being discarded.
_LONG_SECONDS = 300


def slots_and_senders(patient: CheckContext) -> Iterator[Finding]:
    """Look whether the server has a slot and a walsender to spare."""
    slots, senders = patient.row(
        "select (select count(*) from pg_replication_slots), (select count(*) from pg_stat_replication)"
    )
    ours = patient.database.value("select 1 from pg_replication_slots where slot_name = %s", patient.names.slot)
    active = patient.database.value(
        "select 1 from pg_replication_slots where slot_name = %s and active", patient.names.slot
    )
    for name, used, have_one in (("max_replication_slots", slots, ours), ("max_wal_senders", senders, active)):
        most = int(patient.setting(name) or 0)
        said = f"{used} of {most} used"
        mend = f"alter system set {name} = {most + 10};  -- then restart the server"
        if used < most or have_one:
            yield Finding(name, "ok", said)
        else:
            yield Finding(name, "wrong", said, mend)


def slot(patient: CheckContext) -> Iterator[Finding]:
    """Look at the slot: whether it can go on where the checkpoint stands, and what it retains."""
    names, database = patient.names, patient.database
    found = find_slot(database, names.slot)
    if patient.checkpoint is not None:
        # An edge that runs moves slot and checkpoint between two looks at them.
        running = engine_of(patient.config).state.in_use()
        (present_slot if running else check_slot)(database, patient.checkpoint)
    elif found is not None:
        mend = "Name another one, or take it over with 'headrace edge init --adopt': see docs/edge.md."
        yield Finding("slot", "warning", f"{names.slot} is there, and this edge has no checkpoint", mend)
    if found is None:
        yield Finding("slot", "ok", f"no {names.slot} yet: 'headrace edge init' makes it")
        yield from _long_transactions(patient)
        return
    retained = retained_bytes(database, found)
    said = f"{found.name}: {found.wal_status}, retains {retained / (1 << 20):,.0f} MB"
    limit = retained + found.safe_bytes if found.safe_bytes is not None else None
    if found.wal_status == "unreserved" or (limit and retained > 0.5 * limit):
        mend = "Start the edge, or mend the way to the far side; else raise max_slot_wal_keep_size."
        yield Finding("slot", "warning", f"{said}, of at most {(limit or 0) / (1 << 20):,.0f} MB", mend)
    elif not limit and retained > 10 * _GIGABYTE:
        yield Finding("slot", "warning", said, "Start the edge, or mend the way to the far side.")
    else:
        yield Finding("slot", "ok", said)


def failover(patient: CheckContext) -> Iterator[Finding]:
    """Look whether a standby that is promoted would have the slot."""
    standbys = patient.database.value(
        "select count(*) from pg_replication_slots where slot_type = 'physical' and active"
    )
    found = find_slot(patient.database, patient.names.slot)
    if not standbys or patient.database.version < 170_000:
        return
    if found is not None and not found.failover:
        said = f"{standbys} standbys follow, and none would have the slot after a failover"
        mend = "[source.postgresql] failover = true, then 'headrace edge init'; sync_replication_slots = on at the standby."
        yield Finding("failover", "warning", said, mend)
    elif not patient.setting("synchronized_standby_slots"):
        said = "synchronized_standby_slots is empty: changes may be sent that a standby does not have"
        mend = "alter system set synchronized_standby_slots = 'STANDBY_SLOT'; select pg_reload_conf();"
        yield Finding("failover", "warning", said, mend)
    else:
        yield Finding("failover", "ok", "a standby that is promoted has the slot")


def _long_transactions(patient: CheckContext) -> Iterator[Finding]:
    oldest = patient.database.value(
        "select extract(epoch from max(now() - xact_start))::int8 from pg_stat_activity where backend_xid is not null"
    )
    prepared = patient.database.value("select count(*) from pg_prepared_xacts")
    if (oldest or 0) > _LONG_SECONDS or prepared:
        said = f"one has been writing for {oldest or 0} s, {prepared} are prepared: making the slot waits for them"
        yield Finding("open transactions", "warning", said, "select * from pg_stat_activity order by xact_start;")


CHECKS: tuple[Check[CheckContext], ...] = (slots_and_senders, slot, failover)
