"""What an edge needs of a PostgreSQL server's slots: one to spare, or its own where the checkpoint is, kept for failovers."""

from collections.abc import Iterator

from edge.doctor.postgres import CheckContext
from edge.engine_registry import engine_of
from edge.postgres.slot import check_log_end, check_slot, find_slot, log_end, present_slot, retained_bytes, timeline
from headrace.findings import Check, Finding

_GIGABYTE = 1 << 30
#: A transaction that is open for longer, in seconds, keeps `init` waiting and log from being discarded.
_LONG_SECONDS = 300


def slots_and_senders(context: CheckContext) -> Iterator[Finding]:
    """Look whether the server has a slot and a walsender to spare."""
    slots, senders = context.row(
        "select (select count(*) from pg_replication_slots), (select count(*) from pg_stat_replication)"
    )
    ours = context.database.value("select 1 from pg_replication_slots where slot_name = %s", context.names.slot)
    active = context.database.value(
        "select 1 from pg_replication_slots where slot_name = %s and active", context.names.slot
    )
    for name, used, have_one in (("max_replication_slots", slots, ours), ("max_wal_senders", senders, active)):
        most = int(context.setting(name) or 0)
        summary = f"{used} of {most} used"
        fix = f"alter system set {name} = {most + 10};  -- then restart the server"
        if used < most or have_one:
            yield Finding(name, "ok", summary)
        else:
            yield Finding(name, "wrong", summary, fix)


def slot(context: CheckContext) -> Iterator[Finding]:
    """Look at the slot: whether it can go on where the checkpoint is, and what it retains."""
    names, database = context.names, context.database
    found = find_slot(database, names.slot)
    if context.checkpoint is not None:
        # An edge that runs moves slot and checkpoint between two looks at them.
        running = engine_of(context.config).state.in_use()
        if not running and timeline(database) == context.checkpoint.timeline:
            check_log_end(log_end(database), context.checkpoint)
        (present_slot if running else check_slot)(database, context.checkpoint)
    elif found is not None:
        fix = "Name another one, or take it over with 'headrace edge init --adopt': see docs/edge.md."
        yield Finding("slot", "warning", f"{names.slot} is there, and this edge has no checkpoint", fix)
    if found is None:
        yield Finding("slot", "ok", f"no {names.slot} yet: 'headrace edge init' makes it")
        yield from _long_transactions(context)
        return
    retained = retained_bytes(database, found)
    summary = f"{found.name}: {found.wal_status}, retains {retained / (1 << 20):,.0f} MB"
    limit = retained + found.safe_bytes if found.safe_bytes is not None else None
    if found.wal_status == "unreserved" or (limit and retained > 0.5 * limit):
        fix = "Start the edge, or restore the connection to the bridge; else raise max_slot_wal_keep_size."
        yield Finding("slot", "warning", f"{summary}, of at most {(limit or 0) / (1 << 20):,.0f} MB", fix)
    elif not limit and retained > 10 * _GIGABYTE:
        yield Finding("slot", "warning", summary, "Start the edge, or restore the connection to the bridge.")
    else:
        yield Finding("slot", "ok", summary)


def failover(context: CheckContext) -> Iterator[Finding]:
    """Look whether a standby that is promoted would have the slot."""
    standbys = context.database.value(
        "select count(*) from pg_replication_slots where slot_type = 'physical' and active"
    )
    found = find_slot(context.database, context.names.slot)
    if not standbys or context.database.version < 170_000:
        return
    if found is not None and not found.failover:
        summary = f"{standbys} standbys follow, and none would have the slot after a failover"
        fix = "[source.postgresql] failover = true, then 'headrace edge init'; sync_replication_slots = on at the standby."
        yield Finding("failover", "warning", summary, fix)
    elif not context.setting("synchronized_standby_slots"):
        summary = "synchronized_standby_slots is empty: changes may be sent that a standby does not have"
        fix = "alter system set synchronized_standby_slots = 'STANDBY_SLOT'; select pg_reload_conf();"
        yield Finding("failover", "warning", summary, fix)
    else:
        yield Finding("failover", "ok", "a standby that is promoted has the slot")


def _long_transactions(context: CheckContext) -> Iterator[Finding]:
    oldest = context.database.value(
        "select extract(epoch from max(now() - xact_start))::int8 from pg_stat_activity where backend_xid is not null"
    )
    prepared = context.database.value("select count(*) from pg_prepared_xacts")
    if (oldest or 0) > _LONG_SECONDS or prepared:
        summary = f"one has been writing for {oldest or 0} s, {prepared} are prepared: making the slot waits for them"
        yield Finding("open transactions", "warning", summary, "select * from pg_stat_activity order by xact_start;")


CHECKS: tuple[Check[CheckContext], ...] = (slots_and_senders, slot, failover)
