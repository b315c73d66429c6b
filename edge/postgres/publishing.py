"""Which tables can be published without harm, and making a publication of them.

PostgreSQL refuses every update and delete of a table that is published with updates and whose rows the log cannot identify: that
is a failure of the application, and the worst that a capture can do. So nothing is published before it was looked at, and tables
that would be refused are left out. A partitioned table is refused where one of its partitions would be.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from edge.postgres.connection import Database
from edge.postgres.errors import quoted
from headrace.errors import NeedsOperator

#: So many tables are named in a message; of more there is a count.
NAMED = 10
#: So long a change of a replica identity may wait for a table's lock, in seconds: whoever wants the table meanwhile waits too.
_LOCK_SECONDS = 5

#: Whether the log identifies a row of `c` that is updated or deleted.
_IDENTIFIED = """
case c.relreplident
when 'f' then true
when 'd' then exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indimmediate and i.indisvalid)
when 'i' then exists (select from pg_index i where i.indrelid = c.oid and i.indisreplident and i.indisvalid)
else false end
"""
#: Whether `c` has a primary key that the log could identify rows by.
_HAS_KEY = "exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indimmediate)"
#: What a publication for all tables has, partitions under their roots; or the tables that are listed, as `schema.table`.
_CANDIDATES = f"""
select quote_ident(n.nspname) || '.' || quote_ident(t.relname), n.nspname || '.' || t.relname, t.relkind = 'p', array(
    select quote_ident(cn.nspname) || '.' || quote_ident(c.relname)
    from (
        select t.oid where t.relkind = 'r' union all select relid from pg_partition_tree(t.oid) where t.relkind = 'p'
    ) leaf
    join pg_class c using (oid) join pg_namespace cn on cn.oid = c.relnamespace
    where c.relkind = 'r' and not {_IDENTIFIED}
    order by 1
), {_HAS_KEY.replace("c.oid", "t.oid")}, pg_has_role(t.relowner, 'usage')
from pg_class t join pg_namespace n on n.oid = t.relnamespace
where t.relkind in ('r', 'p') and t.relpersistence = 'p' and t.oid >= 16384
and case when %s then n.nspname || '.' || t.relname = any(%s) else not t.relispartition end
order by 2
"""  # noqa: S608 - ours.
#: Published tables of which the server refuses updates and deletes: rows that the log cannot identify, or a row filter that needs
#: a column which the log does not have of old rows.
_REFUSED = f"""
with published as (
    select c.oid, c.relkind from pg_publication_tables p
    join pg_namespace n on n.nspname = p.schemaname join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
    where p.pubname = %s
), leaves as (
    select oid from published
    union select relid from published cross join lateral pg_partition_tree(oid) where relkind = 'p'
), filtered as (
    select part.oid, a.attname
    from pg_publication p join pg_publication_rel r on r.prpubid = p.oid
    cross join lateral regexp_matches(to_jsonb(r) ->> 'prqual', ':varattno ([0-9]+)', 'g') as used(number)
    join pg_attribute a on a.attrelid = r.prrelid and a.attnum = used.number[1]::int
    cross join lateral (select r.prrelid union select relid from pg_partition_tree(r.prrelid)) part (oid)
    where p.pubname = %s
), harmed as (
    select oid from filtered join pg_class c using (oid) where attname not in (
        select k.attname from pg_index i cross join lateral unnest(i.indkey::int2[]) with ordinality listed(attnum, place)
        join pg_attribute k on k.attrelid = i.indrelid and k.attnum = listed.attnum
        where i.indrelid = c.oid and listed.place <= i.indnkeyatts
        and case c.relreplident when 'd' then i.indisprimary else i.indisreplident end
    )
)
select quote_ident(n.nspname) || '.' || quote_ident(c.relname), {_HAS_KEY} and c.relreplident in ('n', 'i'), {_IDENTIFIED}
from leaves join pg_class c using (oid) join pg_namespace n on n.oid = c.relnamespace
where c.relkind = 'r' and c.relpersistence = 'p'
and exists (select from pg_publication where pubname = %s and (pubupdate or pubdelete))
and (not {_IDENTIFIED} or c.relreplident <> 'f' and c.oid in (select oid from harmed))
order by 1
"""  # noqa: S608 - ours.
#: What whole old rows would add to the log, from what the server has counted.
_WRITTEN = """
select coalesce(s.n_tup_upd + s.n_tup_del, 0)::int8, (pg_relation_size(c.oid) / greatest(c.reltuples, 1))::int8
from pg_class c left join pg_stat_user_tables s on s.relid = c.oid where c.oid = %s::regclass
"""


class Candidate(NamedTuple):
    """A table that may be published."""

    #: As SQL takes it, and `schema.table`.
    quoted: str
    name: str
    is_partitioned: bool
    #: The tables whose updates and deletes the server would refuse: itself, or partitions.
    refused: list[str]
    has_key: bool
    #: Whether the user may act as its owner.
    is_owned: bool

    @property
    def as_published(self) -> str:
        """The table in a publication's statement: tables that inherit from it are candidates of their own."""
        return self.quoted if self.is_partitioned else f"only {self.quoted}"


class Refused(NamedTuple):
    """A published table of which the server refuses updates and deletes."""

    quoted: str
    #: Whether it has a primary key that its replica identity does not use.
    has_unused_key: bool
    #: Whether it is its row filter that makes the server refuse.
    by_filter: bool

    @property
    def remedy(self) -> str:
        """The statement that lets the table be updated."""
        identity = "default" if self.has_unused_key and not self.by_filter else "full"
        return f"alter table {self.quoted} replica identity {identity};"


def find_candidates(database: Database, tables: Sequence[str]) -> list[Candidate]:
    """Return the tables that are listed, `schema.table`, or all tables when none is listed."""
    return [Candidate(*row) for row in database.rows(_CANDIDATES, bool(tables), list(tables))]


def find_refused(database: Database, publication: str) -> list[Refused]:
    """Return the tables of a publication of which the server refuses updates and deletes."""
    rows = database.rows(_REFUSED, publication, publication, publication)
    return [Refused(name, unused, identified) for name, unused, identified in rows]


def publication_statement(name: str, tables: Sequence[str]) -> str:
    """Return the statement that makes a publication of tables in SQL, or of all tables where none is given."""
    return f"create publication {quoted(name)} for " + (f"table {', '.join(tables)}" if tables else "all tables")


def chosen_tables(candidates: Sequence[Candidate], row_filters: Mapping[str, str]) -> list[str]:
    """Return the tables that can be published, as the statement that makes a publication takes them."""
    return [
        table.as_published + (f" where ({row_filters[table.name]})" if table.name in row_filters else "")
        for table in candidates
        if not table.refused
    ]


def statements_to_include(publication: str, table: Candidate) -> str:
    """Return what has the rows of a table that was left out identified, and publishes it."""
    altered = " ".join(f"alter table {name} {_identity(table)};" for name in table.refused)
    return f"{altered} alter publication {quoted(publication)} add table {table.as_published};"


def make_publication(
    database: Database,
    name: str,
    tables: Sequence[str],
    row_filters: Mapping[str, str],
    report: Callable[[str], None],
) -> None:
    """Make a publication of the listed tables, `schema.table`, or of all tables when none is listed, and `report` what it has.

    Tables whose updates and deletes the server would refuse are left out. `row_filters` are conditions by table: rows that do not
    meet theirs never leave the server. Raises NeedsOperator when a table does not exist, when the user may not, when no table is
    left, or when a filter would make the server refuse updates.
    """
    candidates = find_candidates(database, tables)
    left_out = [table for table in candidates if table.refused]
    if not left_out:
        # What does not exist is for the server to name.
        chosen = [_listed_table(table, row_filters) for table in tables]
    else:
        chosen = chosen_tables(candidates, row_filters)
        if not chosen:
            raise NeedsOperator(
                f"no table can be published: the log cannot identify rows of {names_of(left_out)}, so the server would refuse "
                "every update and delete of them",
                hint=f"Give them a primary key; or let the log have whole old rows: alter table {left_out[0].quoted} "
                f"{_identity(left_out[0])};",
            )
    database.rows("begin")
    try:
        database.alter(publication_statement(name, chosen))
        refused = find_refused(database, name)
    except BaseException:
        database.rows("rollback")
        raise
    if refused:
        database.rows("rollback")
        why = (
            "its row filter needs a column that is not part of the replica identity"
            if refused[0].by_filter
            else ("its rows cannot be identified")
        )
        raise NeedsOperator(
            f"publication {name!r} would make the server refuse updates and deletes of {refused[0].quoted}: {why}",
            hint=f"Run 'headrace edge init' again after: {refused[0].remedy} Or leave the table out of "
            "[source.postgresql] tables, or its filter out of row_filters.",
        )
    database.alter("commit")
    what = f"{len(chosen)} tables" if left_out else ", ".join(tables) or "all tables"
    report(f"Made publication {name} for {what}")
    for table in left_out:
        report(
            f"Left out {table.name}: the log cannot identify its rows, so the server would refuse its updates and deletes. "
            f"To capture it: {statements_to_include(name, table)}"
        )
    if left_out and not tables:
        report("Tables that are made from now on are not captured until they are added to the publication")
    elif not tables:
        report(
            "Tables that are made from now on are published too: one without a primary key cannot be updated until it has one, "
            "or 'replica identity full'"
        )


def identify_by_whole_rows(
    database: Database, publication: str, tables: Sequence[str], consents: Callable[[list[str]], bool]
) -> list[str]:
    """Let the log have whole old rows of the tables whose updates the server refuses, or would refuse once they are published.

    `consents` takes the statements, each with what it costs, and returns whether they are run. Returns those that ran. Each takes
    its table's lock for a moment; one that does not get it within five seconds is given up, and raises NotConnected.
    """
    if database.value("select 1 from pg_publication where pubname = %s", publication):
        names = [table.quoted for table in find_refused(database, publication)]
    else:
        names = [name for table in find_candidates(database, tables) for name in table.refused]
    statements = [f"alter table {name} replica identity full;" for name in names]
    shown = [f"{statement}  -- {_cost(database, name)}" for statement, name in zip(statements, names, strict=True)]
    if not statements or not consents(shown):
        return []
    database.rows(f"set lock_timeout = '{_LOCK_SECONDS}s'")
    for statement in statements:
        database.alter(statement)
    return statements


def names_of(tables: Sequence[Candidate]) -> str:
    """Return the names of tables, not too many."""
    more = f" and {len(tables) - NAMED} more" if len(tables) > NAMED else ""
    return ", ".join(table.name for table in tables[:NAMED]) + more


def _cost(database: Database, name: str) -> str:
    changes, width = database.rows(_WRITTEN, name)[0]
    return f"each update and delete then writes the old row too, about {width} bytes; {changes} of them were counted so far"


def _identity(table: Candidate) -> str:
    return "replica identity default" if table.has_key and not table.is_partitioned else "replica identity full"


def _listed_table(table: str, row_filters: Mapping[str, str]) -> str:
    where = f" where ({row_filters[table]})" if table in row_filters else ""
    return ".".join(map(quoted, table.split(".", 1))) + where
