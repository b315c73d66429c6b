"""What an edge needs of a PostgreSQL server: version, privileges, settings, clock; and slots: one to spare, or its own where the
checkpoint is, kept for failovers.

Publication and tables are in edge/doctor/tables.py. It only reads, on one ordinary connection and, for the privilege to
replicate, one replication connection.
"""

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from edge.doctor.machine import tls
from edge.engine_registry import engine_of
from edge.postgres.checkpoint import PostgresCheckpoint
from edge.postgres.connection import Database
from edge.postgres.replication import ReplicationStream
from edge.postgres.slot import (
    check_log_end,
    check_server,
    check_slot,
    check_system,
    find_slot,
    log_end,
    present_slot,
    retained_bytes,
    timeline,
)
from headrace.configuration.edge import EdgeFile, Postgresql
from headrace.findings import Check, Finding

_OLDEST, _NEWEST = 14, 18
#: A clock that differs by more than this, in seconds, makes latencies that are measured by two clocks useless.
_CLOCK_SECONDS = 1.0
_GIGABYTE = 1 << 30
#: A transaction that is open for longer, in seconds, keeps `init` waiting and log from being discarded.
_LONG_SECONDS = 300


class CheckContext(NamedTuple):
    """What the checks look at."""

    config: EdgeFile
    names: Postgresql
    database: Database
    checkpoint: PostgresCheckpoint | None

    def setting(self, name: str) -> str | None:
        """Return a setting in its base unit, None where this server has no such setting."""
        value: str | None = self.database.value("select setting from pg_settings where name = %s", name)
        return value

    def row(self, query: str, *parameters: Any) -> tuple[Any, ...]:
        """Return the one row of a query."""
        return self.database.rows(query, *parameters)[0]


def connection(context: CheckContext) -> Iterator[Finding]:
    """Look at the server's version, and at TLS."""
    version = context.database.version // 10_000
    (shown, is_encrypted) = context.row(
        "select current_setting('server_version'), coalesce((select ssl from pg_stat_ssl where pid = pg_backend_pid()), false)"
    )
    summary = f"PostgreSQL {shown} at {context.names} as {context.names.user}"
    if version < _OLDEST:
        yield Finding("connection", "wrong", summary, f"PostgreSQL {_OLDEST} is the oldest that can be captured.")
    elif version > _NEWEST:
        yield Finding("connection", "warning", f"{summary}: newer than what this release was tested with ({_NEWEST})")
    else:
        yield Finding("connection", "ok", summary)
    yield tls(context.names, "rows and password", on=is_encrypted)


def replication_privilege(context: CheckContext) -> Iterator[Finding]:
    """Open a replication connection, as `run` does, and look whether this is the checkpoint's server."""
    stream = ReplicationStream(context.names, context.config.source.name)
    try:
        system = stream.identify()
    finally:
        stream.close()
    if context.checkpoint is not None:
        check_system(system, context.checkpoint)
    yield Finding("replication privilege", "ok", f"{context.names.user} may replicate; timeline {system.timeline}")


def wal_level(context: CheckContext) -> Iterator[Finding]:
    """Check whether the log carries rows, on a server that may be written."""
    check_server(context.database)
    if context.database.value("select pg_is_in_recovery()"):
        yield Finding("wal_level", "wrong", "the server is a standby", "Name the primary in [source.postgresql] host.")
    else:
        yield Finding("wal_level", "ok", "logical")


def max_slot_wal_keep_size(context: CheckContext) -> Iterator[Finding]:
    """Look how much log the server may keep for an edge that is down."""
    name = "max_slot_wal_keep_size"
    megabytes = int(context.setting(name) or -1)
    fix = f"alter system set {name} = '50GB'; select pg_reload_conf();  -- what the disk can spare"
    if megabytes < 0:
        yield Finding(name, "warning", "unlimited: an edge that stays down fills the server's disk", fix)
    elif megabytes < 1024:
        summary = f"{megabytes} MB: an edge that is down for a short while loses its slot"
        yield Finding(name, "warning", summary, fix)
    else:
        yield Finding(name, "ok", f"{megabytes:,} MB")


def timeouts(context: CheckContext) -> Iterator[Finding]:
    """Look at the server's patience with an edge that is down, or silent."""
    sender = int(context.setting("wal_sender_timeout") or 0)
    fix = "alter system set wal_sender_timeout = '60s'; select pg_reload_conf();"
    if sender == 0:
        summary = "off: a connection that was cut keeps the slot from the next one"
        yield Finding("wal_sender_timeout", "warning", summary, fix)
    elif sender < 10_000:
        yield Finding("wal_sender_timeout", "warning", f"{sender} ms: a slow moment ends the stream", fix)
    else:
        yield Finding("wal_sender_timeout", "ok", f"{sender // 1000} s")
    idle = context.setting("idle_replication_slot_timeout")
    if idle is not None and int(idle) > 0:
        yield Finding(
            "idle_replication_slot_timeout",
            "warning",
            f"{idle} s: an edge that is down for longer loses its slot, and changes with it",
            "alter system set idle_replication_slot_timeout = 0; select pg_reload_conf();",
        )


def logical_decoding_work_mem(context: CheckContext) -> Iterator[Finding]:
    """Look at the memory that decoding has before it writes large transactions to disk."""
    name = "logical_decoding_work_mem"
    kilobytes = int(context.setting(name) or 0)
    if kilobytes < 16 * 1024:
        fix = f"alter system set {name} = '64MB'; select pg_reload_conf();"
        yield Finding(name, "warning", f"{kilobytes} kB: most transactions are written to disk to be decoded", fix)
    else:
        yield Finding(name, "ok", f"{kilobytes // 1024} MB")


def clock(context: CheckContext) -> Iterator[Finding]:
    """Compare the clocks: lag is measured by one, latency by both."""
    before = time.time()
    there = float(context.database.value("select extract(epoch from clock_timestamp())::float8"))
    after = time.time()
    # Somewhere between the two.
    differs = max(before - there, there - after, 0.0)
    if differs > _CLOCK_SECONDS:
        summary = f"differs from the server's by {differs:.1f} s: latencies are off by as much"
        yield Finding("clock", "warning", summary, "Let both follow a time server.")
    else:
        yield Finding("clock", "ok", f"agrees with the server's, within {after - before + differs:.3f} s")


def slots_and_senders(context: CheckContext) -> Iterator[Finding]:
    """Check whether the server has a slot and a walsender to spare."""
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
    existing = find_slot(database, names.slot)
    if context.checkpoint is not None:
        # An edge that runs moves slot and checkpoint between two looks at them.
        running = engine_of(context.config).state.in_use()
        if not running and timeline(database) == context.checkpoint.timeline:
            check_log_end(log_end(database), context.checkpoint)
        (present_slot if running else check_slot)(database, context.checkpoint)
    elif existing is not None:
        fix = "Name another one, or take it over with 'headrace edge init --adopt': see docs/edge.md."
        yield Finding("slot", "warning", f"{names.slot} is there, and this edge has no checkpoint", fix)
    if existing is None:
        yield Finding("slot", "ok", f"no {names.slot} yet: 'headrace edge init' makes it")
        yield from _long_transactions(context)
        return
    retained = retained_bytes(database, existing)
    summary = f"{existing.name}: {existing.wal_status}, retains {retained / (1 << 20):,.0f} MB"
    limit = retained + existing.safe_bytes if existing.safe_bytes is not None else None
    if existing.wal_status == "unreserved" or (limit and retained > 0.5 * limit):
        fix = "Start the edge, or restore the connection to the bridge; else raise max_slot_wal_keep_size."
        yield Finding("slot", "warning", f"{summary}, of at most {(limit or 0) / (1 << 20):,.0f} MB", fix)
    elif not limit and retained > 10 * _GIGABYTE:
        yield Finding("slot", "warning", summary, "Start the edge, or restore the connection to the bridge.")
    else:
        yield Finding("slot", "ok", summary)


def failover(context: CheckContext) -> Iterator[Finding]:
    """Check whether a standby that is promoted would have the slot."""
    standbys = context.database.value(
        "select count(*) from pg_replication_slots where slot_type = 'physical' and active"
    )
    existing = find_slot(context.database, context.names.slot)
    if not standbys or context.database.version < 170_000:
        return
    if existing is not None and not existing.failover:
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


CHECKS: tuple[Check[CheckContext], ...] = (
    connection,
    replication_privilege,
    wal_level,
    max_slot_wal_keep_size,
    timeouts,
    logical_decoding_work_mem,
    clock,
    slots_and_senders,
    slot,
    failover,
)
