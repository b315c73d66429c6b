"""A table's schema as text, in each of the forms of `headrace bridge schema`."""

import json

from headrace.errors import ConfigurationError
from headrace.schema import TableSchema
from headrace.schemas import avro, connect, json_schema, sql


def printed(form: str, schema: TableSchema, connector: str, prefix: str, *, of_key: bool) -> str:
    """Return the schema of a table's values, or keys, on one line where it is JSON; `prefix` is that of the stream's topics.

    Raises ConfigurationError for the keys of a table without one, or as SQL.
    """
    if form == "sql":
        if of_key:
            raise ConfigurationError("--key has no meaning with --sql", hint="The statement has the primary key.")
        return sql.create_table(schema)
    if of_key and not schema.key:
        raise ConfigurationError(
            f"table {schema.schema}.{schema.table} has no key",
            hint="Its records have no key: leave --key out.",
        )
    if form == "avro":
        made = avro.schemas(schema, connector).with_prefix(prefix)
        return str(made.key) if of_key else made.value
    if form == "connect":
        found = connect.key(schema, prefix) if of_key else connect.value(schema, connector, prefix)
    else:
        found = json_schema.key(schema) if of_key else json_schema.value(schema)
    return json.dumps(found, ensure_ascii=False, separators=(",", ":"))
