"""How rows are ordered by their key and found by it: conditions in SQL by the operators of the key's own index.

A statement over rows runs under the role's own search path, and `>` there may be another order than that of the index or of
`order by`: that of citext, where the path lacks the extension's schema, is then the one of text, and rows between the two were
lost. So operators are those of the index's class, by their schemas. Values are literals that are cast to the columns' types.
"""

from collections.abc import Sequence
from typing import NamedTuple, Self

from edge.postgres.connection import Database
from edge.postgres.errors import quoted
from edge.snapshot.plan import Key

#: The primary key, and the index that the replica identity names, each with its key columns in order; no deferrable one
#: (edge/postgres/catalog.py). A class's operators are <, = and >, by the numbers that all b-trees have; one may lack some, and
#: an index WITHOUT OVERLAPS is no b-tree: then rows are in the order of the server's own operators, and the index is of no use.
_KEYS = """
select i.indisprimary, i.indisreplident, m.amname = 'btree', array_agg(k.attnum::int order by k.place),
       array_agg((select quote_ident(cn.nspname) || '.' || quote_ident(co.collname)
                  from pg_collation co join pg_namespace cn on cn.oid = co.collnamespace
                  where co.oid = k.collation and not (co.collname = 'default' and t.attcollation = co.oid))
                 order by k.place),
       array_agg(array(select quote_ident(n.nspname) || '.' || o.oprname::text
                       from pg_opclass c
                       join pg_amop a on a.amopfamily = c.opcfamily and a.amoplefttype = c.opcintype
                                      and a.amoprighttype = c.opcintype
                       join pg_operator o on o.oid = a.amopopr join pg_namespace n on n.oid = o.oprnamespace
                       where c.oid = k.class and a.amopstrategy in (1, 3, 5)
                       order by a.amopstrategy) order by k.place)
from pg_index i join pg_class x on x.oid = i.indexrelid join pg_am m on m.oid = x.relam
cross join lateral (
    select (i.indkey::int2[])[number] as attnum, (i.indcollation::oid[])[number] as collation,
           (i.indclass::oid[])[number] as class, number as place
    from generate_series(0, i.indnkeyatts - 1) as number
) k
join pg_attribute t on t.attrelid = i.indrelid and t.attnum = k.attnum
where i.indrelid = %s::int8::oid and (i.indisprimary or i.indisreplident) and i.indimmediate
group by i.indexrelid, i.indisprimary, i.indisreplident, m.amname
"""


class Operators(NamedTuple):
    """A class's operators, by their schemas."""

    less: str
    equal: str
    greater: str


_SERVERS = Operators("pg_catalog.<", "pg_catalog.=", "pg_catalog.>")
#: Of each column of an index, by its number and in the index's order, the collation and the operators.
KeyIndex = dict[int, tuple[str | None, Operators]]


class KeyColumn(NamedTuple):
    """A column of a key in SQL."""

    #: Its name, with the index's collation.
    name: str
    cast: str
    operators: Operators

    @classmethod
    def of(cls, name: str, cast: str, index: tuple[str | None, Operators]) -> Self:
        """Return a column that an index has."""
        collation, operators = index
        return cls(quoted(name) + (f" collate {collation}" if collation else ""), cast, operators)

    def value(self, text: str) -> str:
        """Return a value in SQL."""
        return f"{literal(text)}::{self.cast}"


def find_keys(database: Database, oid: int) -> tuple[KeyIndex | None, KeyIndex | None]:
    """Return the primary key and the replica identity's index."""
    primary = replica = None
    for is_primary, is_replica, is_btree, numbers, collations, operators in database.rows(_KEYS, oid):
        orders = [Operators(*it) if is_btree and len(it) == len(_SERVERS) else _SERVERS for it in operators]
        rules = dict(zip(numbers, zip(collations, orders, strict=True), strict=True))
        primary, replica = rules if is_primary else primary, rules if is_replica else replica
    return primary, replica


def ordered(key: Sequence[KeyColumn]) -> str:
    """Return what a statement orders by.

    By name, always: of a citext that is indexed as text, the type's order and the server's `>` are two.
    """
    return ", ".join(f"{name} using operator({operators.less})" for name, _, operators in key)


def described(key: Sequence[KeyColumn]) -> str:
    """Return that order in the form that plans of copies under way have."""
    return ", ".join(
        name + ("" if operators == _SERVERS else f" using operator({operators.less})") for name, _, operators in key
    )


def behind(key: Sequence[KeyColumn], after: Key) -> list[str]:
    """Return conditions of which one is true of a row behind a key, and none of others; an index finds the rows of each."""
    values = [column.value(text) for column, text in zip(key, after, strict=True)]
    if len(orders := {column.operators.greater for column in key}) == 1:
        return [f"({_names(key)}) operator({orders.pop()}) ({', '.join(values)})"]
    # A comparison of rows takes one operator for all columns.
    conditions, same = [], ""
    for (name, _, operators), value in zip(key, values, strict=True):
        conditions.append(f"{same}{name} operator({operators.greater}) {value}")
        same += f"{name} operator({operators.equal}) {value} and "
    return conditions


def one_of(key: Sequence[KeyColumn], wanted: Sequence[Key]) -> str:
    """Return the condition that is true of the rows with these keys."""
    rows = [[column.value(text) for column, text in zip(key, texts, strict=True)] for texts in wanted]
    if all(column.operators == _SERVERS for column in key):
        listed = ", ".join(f"({', '.join(row)})" for row in rows)
        return f"({_names(key)}) in ({listed})"
    if len(key) == 1:
        return f"{key[0].name} operator({key[0].operators.equal}) any (array[{', '.join(row[0] for row in rows)}])"
    names = [f"{name} operator({operators.equal})" for name, _, operators in key]
    return " or ".join(" and ".join(f"{name} {value}" for name, value in zip(names, row, strict=True)) for row in rows)


def literal(text: str) -> str:
    """Return a text as SQL takes it, regardless of `standard_conforming_strings`."""
    mark = "E" if "\\" in text else ""
    return mark + "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def _names(key: Sequence[KeyColumn]) -> str:
    return ", ".join(column.name for column in key)
