"""What an edge needs of the publication and of each published table: that nothing is left out, and no statement fails.

A table that is published with updates and has no replica identity makes PostgreSQL refuse every update of it: that is a failure
of the application, and the worst that a capture can do.
"""

from collections.abc import Iterator
from importlib.resources import files
from typing import NamedTuple

from edge.doctor.machine import policy_findings
from edge.doctor.postgres import CheckContext
from edge.postgres.catalog import published_columns
from edge.postgres.errors import quoted
from edge.records.column_policy import Policy
from headrace.findings import Check, Finding

_PUBLISHED = files("edge.doctor").joinpath("published.sql").read_text(encoding="utf-8")
#: So many tables are named; of more there is a count.
_NAMED = 10


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

    @property
    def identified(self) -> bool:
        """Whether the log identifies the row that was updated or deleted; the server refuses to do either if not."""
        return {"d": self.has_key, "f": True, "i": self.has_index}.get(self.identity, False)


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
    absent = [table for table in context.names.tables if table not in _names(context)]
    if absent:
        fix = f"alter publication {quoted(name)} add table {', '.join(absent)};"
        yield Finding("publication", "wrong", f"{name} lacks {_listed(absent)} of [source.postgresql] tables", fix)
    if not missing and not absent:
        how = ", partitions as their root" if via_root else ""
        summary = f"{name}: {'all tables' if every else 'listed tables'}, {len(_tables(context))} now{how}"
        yield Finding("publication", "ok", summary)


def identities(context: CheckContext) -> Iterator[Finding]:
    """Look for tables of which updates and deletes fail, and for those without a key."""
    tables = _tables(context)
    refused = [table for table in tables if not table.identified]
    if refused:
        yield Finding(
            "replica identity",
            "wrong",
            f"updates and deletes fail, at the application, of {_listed([table.name for table in refused])}",
            " ".join(_mend(table) for table in refused[:_NAMED]),
        )
    elif tables:
        yield Finding("replica identity", "ok", f"all of {len(tables)} tables can be updated")
    deferrable = [table.name for table in tables if table.deferrable]
    if deferrable:
        summary = (
            f"deferrable: {_listed(deferrable)}; two rows may have the same one for a moment, so records have no key"
        )
        remedy = f"Make the constraint of {deferrable[0]} again without 'deferrable', where the application allows it."
        yield Finding("primary key", "warning", summary, remedy)
    keyless = [table.name for table in tables if table.identified and not table.has_key and not table.deferrable]
    if keyless:
        summary = (
            f"none: {_listed(keyless)}; their records have no key, equal rows cannot be distinguished, and no snapshot copies "
            "them: rows from before capture began reach no consumer"
        )
        yield Finding("primary key", "warning", summary, f"alter table {keyless[0]} add primary key (COLUMN);")


def unlogged(context: CheckContext) -> Iterator[Finding]:
    """Look for tables that are published and have no log."""
    # A publication for all tables leaves them out; one that lists them cannot.
    found = [table.name for table in _tables(context) if table.unlogged]
    if found:
        yield Finding("unlogged", "warning", f"not captured: {_listed(found)}", f"alter table {found[0]} set logged;")


def select_privilege(context: CheckContext) -> Iterator[Finding]:
    """Look whether tables may be read, which snapshots and `verify` do."""
    found = [table.name for table in _tables(context) if not table.may_select]
    user = quoted(context.names.user)
    if found:
        summary = f"missing on {_listed(found)}: no snapshot and no 'headrace verify' of them"
        yield Finding("select privilege", "warning", summary, f"grant select on {', '.join(found[:_NAMED])} to {user};")
    elif _tables(context):
        yield Finding("select privilege", "ok", f"{context.names.user} may read all published tables")


def policy(context: CheckContext) -> Iterator[Finding]:
    """Look for rules of the policy that match nothing, and for tables to which one cannot apply."""
    rules = Policy.of(context.config)
    yield from policy_findings(rules, list(published_columns(context.database, context.names.publication)))


def _tables(context: CheckContext) -> list[Published]:
    return [Published(*row) for row in context.database.rows(_PUBLISHED, context.names.publication)]


def _names(context: CheckContext) -> set[str]:
    rows = context.database.rows(
        "select schemaname || '.' || tablename from pg_publication_tables where pubname = %s", context.names.publication
    )
    return {row[0] for row in rows}


def _mend(table: Published) -> str:
    if table.has_key:
        return f"alter table {table.name} replica identity default;"
    return f"alter table {table.name} replica identity full;"


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


CHECKS: tuple[Check[CheckContext], ...] = (publication, identities, unlogged, select_privilege, policy)
