"""Tables and types as the log announces them, in Relation and Type messages, each from there on.

Assumes that the server announces a relation before its first change and again whenever it was altered. Called by the decoder;
queries a table's key where the log does not have it.

Where rows have all columns (`[records] unavailable`), a new row has Debezium's placeholder in place of what the log does not
carry, in the form of the column's type. An old row of which the log has the key alone has null, or, for a column that is NOT
NULL, the empty value of its type, as Debezium's has.
"""

import hashlib
import logging
import struct
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Sequence
from typing import Final

from msgspec import json

from edge.postgres import envelope, values
from edge.postgres.debezium_types import PLACEHOLDER, DebeziumType, debezium_type
from edge.postgres.relations import Relation, known_columns, string, table_schema
from edge.postgres.rows import Table
from edge.postgres.values import OIDS, array
from edge.records.alterations import Catalog, TableDescription
from edge.records.column_policy import LeftOut, Policy, Treatment, check_keys_differ, flat, never_null, within
from headrace.configuration.edge import Records
from headrace.schema import Column

_log = logging.getLogger(__name__)

_INT32 = struct.Struct(">I").unpack_from
#: Replica identities, full and nothing, with which a relation is announced without its key.
_KEY_NOT_IN_LOG = "fn"
#: Forms whose numbers may not fit into 64 bits: in microseconds those of years from 294247 on.
_WIDE = ("NanoTimestamp", "MicroTimestamp", "MicroDuration")


class RelationCache:
    """One source's tables by OID."""

    def __init__(
        self,
        *,
        source: str,
        database: str,
        key_of: Callable[[Relation], list[str]],
        records: Records,
        policy: Policy,
        catalog_of: Callable[[Relation], Catalog | None] = lambda _: None,
        above_of: Callable[[Relation], Sequence[tuple[str, str]] | None] = lambda _: (),
    ) -> None:
        """`catalog_of`: what the catalog has of a table's columns now; None where it has others.

        `above_of`: schema and name of the tables that a table is a partition of, or inherits from; None where that is not known.
        """
        self.tables: dict[int, Table] = {}
        self._source, self._database = source, database
        self._key_of, self._records, self._policy = key_of, records, policy
        self._catalog_of, self._above_of = catalog_of, above_of
        self._types: dict[int, str] = {}
        # From a domain's OID to that of the built-in type beneath.
        self._domains: dict[int, int] = {}

    def relation(self, message: bytes) -> Table | None:
        """Note a relation, new or as it is from now on; None for a mere repeat. Raises as Relation.parse does."""
        relation = Relation.parse(message, self._domains)
        name, key = (relation.schema, relation.table), self._key(relation)
        above = self._above_of(relation) if self._policy.has_rules else ()
        admitted = self._policy.admits(*name, above)
        columns = [column.name for column in relation.columns]
        treatments: list[Treatment | None] = [None] * len(columns)
        if admitted:
            try:
                treatments = self._policy.treatments(*name, columns, key, above)
            except LeftOut as problem:
                _log.warning("%s. %s", problem.message, problem.hint)
                admitted = False
        debezium_types = [
            _treated(treatment)
            if treatment
            else debezium_type(column.type_oid, column.modifier, self._records, self._types.get(column.type_oid, ""))
            for column, treatment in zip(relation.columns, treatments, strict=True)
        ]
        if admitted:
            debezium_types = _checked(relation, key, debezium_types, in_avro=self._records.format == "avro")
        actions = [treatment.action if treatment else None for treatment in treatments]
        required = self._required(relation)
        schema = table_schema(relation, key, self._types, debezium_types, actions, required)
        former = self.tables.get(relation.oid)
        if former is not None and (former.relation, former.schema, former.admitted) == (relation, schema, admitted):
            return None
        shared = self.shared(relation.schema, relation.table)
        table = Table(relation, schema, shared, debezium_types, admitted=admitted)
        if self._records.unavailable == "placeholder":
            described = {column.name: column for column in schema.columns}
            forms = [(column.type_oid, form) for column, form in zip(relation.columns, debezium_types, strict=True)]
            table.placeholders = placeholders(forms, self._records)
            table.fallbacks = fallbacks(forms, [described.get(column.name) for column in relation.columns])
        table.schema_sent = former is not None and former.schema_sent and former.schema == schema
        table.description = TableDescription(
            identity=str(relation.oid),
            name=f"{relation.schema}.{relation.table}",
            columns=known_columns(relation, self._types, actions),
            schema=hashlib.sha256(json.encode(schema.change())).hexdigest()[:16],
            catalog=lambda: self._catalog_of(relation),
            left_out=schema.excluded,
            depends_on_catalog=relation.identity in _KEY_NOT_IN_LOG or bool(required),
        )
        self.tables[relation.oid] = table
        return table

    def shared(self, schema: str, table: str) -> envelope.Table:
        """Return what all records of a table share, announced or not."""
        return envelope.Table(source=self._source, database=self._database, schema=schema, table=table)

    def type(self, message: bytes) -> None:
        """Byte1('Y') Int32(oid) String(namespace) String(name); of a domain, it names the type beneath."""
        (oid,) = _INT32(message, 1)
        namespace, offset = string(message, 5)
        name, offset = string(message, offset)
        if offset != len(message):
            raise ValueError("a type does not end where its name does")
        # The server leaves the name of its own catalog out.
        if namespace and name in OIDS:
            name = f"{namespace}.{name}"
        elif name in OIDS:
            self._domains[oid] = OIDS[name]
        self._types[oid] = name

    def _required(self, relation: Relation) -> frozenset[str]:
        """Return which columns are NOT NULL, where schema records have that: it is not in the log."""
        catalog = self._catalog_of(relation) if self._records.envelope == "debezium" else None
        return catalog.required if catalog is not None else frozenset()

    def _key(self, relation: Relation) -> list[str]:
        if relation.identity not in _KEY_NOT_IN_LOG:
            return [column.name for column in relation.columns if column.identity]
        key = self._key_of(relation)
        if not {column.name for column in relation.columns}.issuperset(key):
            # The answer is that of now. Stopping would not help: the log holds the table as it was.
            _log.warning(
                "the key of %s.%s was altered after the changes that are read now were written: they have no key",
                relation.schema,
                relation.table,
            )
            return []
        return key


def _checked(
    relation: Relation, key: list[str], debezium_types: list[DebeziumType | None], *, in_avro: bool
) -> list[DebeziumType | None]:
    """Return the forms of a table's columns, which raise NeedsOperator for what they cannot hold."""
    table = f"{relation.schema}.{relation.table}"
    named = list(zip([column.name for column in relation.columns], debezium_types, strict=True))
    check_keys_differ(table, ((name, form.rounded_by) for name, form in named if form is not None and name in key))
    return [form and _limited(form, f"{table}.{name}", in_key=name in key, in_avro=in_avro) for name, form in named]


def _limited(form: DebeziumType, column: str, *, in_key: bool, in_avro: bool) -> DebeziumType:
    convert = form.convert
    if convert is None:
        return form
    if form.name.endswith(_WIDE):
        convert = within(64, convert, column)
    elif form.element is not None and form.name.removesuffix(">").endswith(_WIDE):
        convert = array(within(64, form.element, column))
    if in_avro and form.element is not None:
        convert = flat(convert, column)
    if form.has_null and in_key:
        convert = never_null(convert, column)
    return form._replace(convert=convert)


def _treated(treatment: Treatment) -> DebeziumType | None:
    """Return the form of a column that the policy does something to; None for one that it leaves out."""
    hide = treatment.hide
    return hide and DebeziumType("text", lambda text: json.encode(hide(text).decode()))


_TEXT: Final = b'"%b"' % PLACEHOLDER
_EMPTY: Final = {
    **dict.fromkeys(values.INTEGERS, b"0"),
    **dict.fromkeys(values.FLOATS, b"0.0"),
    values.BOOL: b"false",
    values.TIMESTAMPTZ: b'"1970-01-01T00:00:00Z"',
    values.TIMESTAMP: b'"1970-01-01T00:00:00"',
    OIDS["date"]: b'"1970-01-01"',
    OIDS["time"]: b'"00:00:00"',
    OIDS["numeric"]: b'"0"',
}


def placeholders(columns: Sequence[tuple[int, DebeziumType | None]], records: Records) -> list[bytes | None]:
    """Return what a new row has for each column, by its type's OID or its form."""
    binary = {"base64": b64encode(PLACEHOLDER), "base64-url-safe": urlsafe_b64encode(PLACEHOLDER)}
    of_bytes = b'"%b"' % binary.get(records.binary or "", PLACEHOLDER)
    return [
        form.placeholder if form is not None else of_bytes if type_oid == values.BYTEA else _TEXT
        for type_oid, form in columns
    ]


def fallbacks(
    columns: Sequence[tuple[int, DebeziumType | None]], described: Sequence[Column | None]
) -> list[bytes | None]:
    """Return what an old row has for each column; `described` has them as the schema record does, None for those left out."""
    return [
        values.NULL
        if column is None or column.optional
        else form.empty
        if form is not None
        else _EMPTY.get(type_oid, b'""')
        for (type_oid, form), column in zip(columns, described, strict=True)
    ]
