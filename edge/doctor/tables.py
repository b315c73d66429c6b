"""What an edge needs of the publication and of each published table: that nothing is left out, and no statement fails.

Where the publication is not made yet, what `init` would publish is looked at, and what that would cost.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from edge.doctor.machine import policy_findings
from edge.doctor.postgres import CheckContext
from edge.postgres import publishing
from edge.postgres.catalog import published_columns
from edge.postgres.errors import quoted
from edge.records.column_policy import Policy
from headrace.findings import Check, Finding

_PUBLISHED = files("edge.doctor").joinpath("published.sql").read_text(encoding="utf-8")
#: How many published tables have whole old rows in the log, and about how many bytes of them a day.
_WHOLE_ROWS = """
select count(*), sum(
    86400 * (coalesce(s.n_tup_upd + s.n_tup_del, 0)) * (pg_relation_size(c.oid) / greatest(c.reltuples, 1))
    / greatest(extract(epoch from now() - coalesce(d.stats_reset, pg_postmaster_start_time())), 1)
)::int8
from pg_publication_tables p
join pg_namespace n on n.nspname = p.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
join pg_stat_database d on d.datname = current_database()
left join pg_stat_user_tables s on s.relid = c.oid
where p.pubname = %s and c.relreplident = 'f'
"""
#: So many tables are named; of more there is a count.
_NAMED = publishing.NAMED


class Published(NamedTuple):
    """A published table."""

    name: str
    #: `d` for the primary key, `f` for the whole row, `i` for an index, `n` for nothing.
    identity: str
    has_key: bool
    #: Whether it has a primary key that is deferrable, which neither the log nor records take as one.
    deferrable: bool
    has_index: bool
    unlogged: bool
    may_select: bool


def publication(context: CheckContext) -> Iterator[Finding]:
    """Look at what the publication publishes, and of which tables."""
    name = context.names.publication
    rows = context.database.rows(
        "select puballtables, pubviaroot, pubinsert, pubupdate, pubdelete, pubtruncate, oid::int8 from pg_publication "
        "where pubname = %s",
        name,
    )
    if not rows:
        return
    every, via_root, *kinds, oid = rows[0]
    if context.checkpoint is not None and oid != context.checkpoint.publication_oid:
        summary = f"{name} was dropped and made again since 'init': changes in between were not published"
        yield Finding("publication", "wrong", summary, "See docs/edge.md: a new epoch, and the tables copied again.")
    missing = [kind for kind, on in zip(("insert", "update", "delete", "truncate"), kinds, strict=True) if not on]
    if missing:
        fix = f"alter publication {quoted(name)} set (publish = 'insert, update, delete, truncate');"
        yield Finding("publication", "wrong", f"{name} does not publish {', '.join(missing)}", fix)
    published = _names(context) if context.names.tables else set()
    absent = [table for table in context.names.tables if table not in published]
    if absent:
        fix = f"alter publication {quoted(name)} add table {', '.join(absent)};"
        yield Finding("publication", "wrong", f"{name} lacks {_join(absent)} of [source.postgresql] tables", fix)
    if not missing and not absent:
        how = ", partitions as their root" if via_root else ""
        summary = f"{name}: {'all tables' if every else 'listed tables'}, {len(_tables(context))} now{how}"
        yield Finding("publication", "ok", summary)


def may_make(context: CheckContext) -> Iterator[Finding]:
    """Look what `init` would publish, where the publication is not there, and whether it may make it."""
    names = context.names
    if context.database.value("select 1 from pg_publication where pubname = %s", names.publication):
        return
    candidates = publishing.find_candidates(context.database, names.tables)
    left_out = [table for table in candidates if table.refused]
    if left_out:
        summary = (
            f"of {publishing.names_of(left_out)} the log cannot identify rows: once published, their updates and deletes would "
            "fail, at the application, so 'init' leaves them out"
        )
        fix = "headrace edge init --replica-identity full, or a primary key, or after 'init': " + " ".join(
            publishing.statements_to_include(names.publication, table) for table in left_out[:_NAMED]
        )
        yield Finding("replica identity", "warning", summary, fix)
    superuser, create = context.row(
        "select rolsuper, has_database_privilege(current_database(), 'create') from pg_roles where rolname = current_user"
    )
    chosen = publishing.chosen_tables(candidates, names.row_filters)
    owned = {table.quoted for table in candidates if table.is_owned}
    foreign = [
        table for table in chosen if not superuser and table.partition(" where ")[0].removeprefix("only ") not in owned
    ]
    listed = bool(names.tables or left_out)
    if not chosen:
        yield Finding("publication", "wrong", f"no {names.publication} yet, and no table that it could have")
    elif superuser or (listed and create and not foreign):
        what = f"for {len(chosen)} tables" if listed else f"for all tables, {len(chosen)} now"
        yield Finding("publication", "ok", f"no {names.publication} yet: 'headrace edge init' makes it {what}")
    else:
        why = f"does not own {_join(foreign)}" if listed and foreign else "is no superuser"
        summary = f"no {names.publication} yet, and {names.user} {why}, so that 'init' may not make it"
        by_hand = f"{publishing.publication_statement(names.publication, chosen)};  -- as a superuser"
        yield Finding("publication", "wrong", summary, by_hand)


def cost(context: CheckContext) -> Iterator[Finding]:
    """Estimate by the server's own counts what capturing costs it: log that is kept, whole old rows, memory."""
    per_day, retained_most = context.row(
        "select (86400 * wal_bytes / greatest(extract(epoch from now() - stats_reset), 1))::int8, "
        "current_setting('max_slot_wal_keep_size') from pg_stat_wal"
    )
    memory = int(context.setting("logical_decoding_work_mem") or 0) // 1024
    summary = (
        f"the server writes {(per_day or 0) >> 20:,} MB of log a day, which it keeps while the edge is down "
        f"(max_slot_wal_keep_size: {retained_most}); one walsender decodes it, with up to {memory} MB of memory"
    )
    whole, bytes_a_day = context.row(_WHOLE_ROWS, context.names.publication)
    if whole:
        summary += f"; whole old rows of {whole} tables are about {(bytes_a_day or 0) >> 20:,} MB of that"
    yield Finding("cost", "ok", summary)


def identities(context: CheckContext) -> Iterator[Finding]:
    """Look for tables of which updates and deletes fail, and for those without a key."""
    tables = _tables(context)
    refused = publishing.find_refused(context.database, context.names.publication)
    if refused:
        yield Finding(
            "replica identity",
            "wrong",
            f"updates and deletes fail, at the application, of {_join([table.quoted for table in refused])}",
            " ".join(table.remedy for table in refused[:_NAMED]),
        )
    elif tables:
        yield Finding("replica identity", "ok", f"all of {len(tables)} tables can be updated")
    failing = {table.quoted for table in refused}
    deferrable = [table.name for table in tables if table.deferrable]
    if deferrable:
        summary = (
            f"deferrable: {_join(deferrable)}; two rows may have the same one for a moment, so records have no key"
        )
        remedy = f"Make the constraint of {deferrable[0]} again without 'deferrable', where the application allows it."
        yield Finding("primary key", "warning", summary, remedy)
    keyless = [
        table.name for table in tables if table.name not in failing and not table.has_key and not table.deferrable
    ]
    if keyless:
        summary = (
            f"none: {_join(keyless)}; their records have no key, so consumers count equal rows, and a copy of one holds "
            "a transaction open for as long as it takes"
        )
        yield Finding("primary key", "warning", summary, f"alter table {keyless[0]} add primary key (COLUMN);")


def unlogged(context: CheckContext) -> Iterator[Finding]:
    """Look for tables that are published and have no log."""
    # A publication for all tables leaves them out; one that lists them cannot.
    tables = [table.name for table in _tables(context) if table.unlogged]
    if tables:
        yield Finding("unlogged", "warning", f"not captured: {_join(tables)}", f"alter table {tables[0]} set logged;")


def select_privilege(context: CheckContext) -> Iterator[Finding]:
    """Check whether tables may be read, which snapshots and `verify` do."""
    tables = [table.name for table in _tables(context) if not table.may_select]
    user = quoted(context.names.user)
    if tables:
        summary = f"missing on {_join(tables)}: no snapshot and no 'headrace verify' of them"
        yield Finding(
            "select privilege", "warning", summary, f"grant select on {', '.join(tables[:_NAMED])} to {user};"
        )
    elif _tables(context):
        yield Finding("select privilege", "ok", f"{context.names.user} may read all published tables")


def policy(context: CheckContext) -> Iterator[Finding]:
    """Look for rules of the policy that match nothing, and for tables to which one cannot apply."""
    rules = Policy.of(context.config)
    if not rules.has_rules:
        return
    yield from policy_findings(rules, list(published_columns(context.database, context.names.publication)))


def _tables(context: CheckContext) -> list[Published]:
    return [Published(*row) for row in context.database.rows(_PUBLISHED, context.names.publication)]


def _names(context: CheckContext) -> set[str]:
    rows = context.database.rows(
        "select schemaname || '.' || tablename from pg_publication_tables where pubname = %s", context.names.publication
    )
    return {row[0] for row in rows}


def _join(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


CHECKS: tuple[Check[CheckContext], ...] = (
    may_make,
    publication,
    identities,
    unlogged,
    select_privilege,
    policy,
    cost,
)
