"""dbt over the lake's files: the sources of a project, and a plugin of dbt-duckdb that shows one publication to a whole run.

In profiles.yml: `plugins: [{module: headrace.lake.dbt, config: {lake: lake.toml}}]`. The tables are views in a database in
memory, `published`, so nothing stays in the project's file but what its models make. dbt is the user's own.
"""

import json
import re
from typing import TYPE_CHECKING, Any

from headrace.errors import ConfigurationError
from headrace.lake.lake import Snapshot, open, type_name  # noqa: A004 - as `gzip.open` is called.
from headrace.lake.table import Column

if TYPE_CHECKING:
    import duckdb
try:
    from dbt.adapters.duckdb.plugins import BasePlugin
except ModuleNotFoundError:
    # The command that prints sources runs where dbt need not be.
    BasePlugin = object

#: The database in memory.
_DATABASE = "published"
#: How Jinja's own parts begin; what JSON leaves as it is, and YAML refuses or takes for a line's end.
_JINJA = re.compile(r"\{(?=[{%#])")
_NO_YAML = re.compile(r"[\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_STATE = ("lake.published", "lake.tables")


class Plugin(BasePlugin):  # type: ignore[misc] # dbt has no types, and may be missing.
    """What dbt-duckdb calls for each connection; the configuration has `lake`, the lake's file, and may have `as_of`, a time."""

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        """Take what is published now, for the whole run."""
        as_of = plugin_config.get("as_of")
        # YAML has made a time or a day of it, unless it is quoted.
        self._snapshot = open(plugin_config["lake"]).at(None if as_of is None else str(as_of))

    def configure_connection(self, conn: "duckdb.DuckDBPyConnection") -> None:
        """Show the tables in a connection."""
        show(self._snapshot, conn)


def show(snapshot: Snapshot, connection: "duckdb.DuckDBPyConnection") -> None:
    """Make the tables of a snapshot views of a database in memory, `published`; what is current in the connection stays so."""
    attached = connection.execute(
        "SELECT path FROM duckdb_databases() WHERE lower(database_name) = ?", [_DATABASE]
    ).fetchone()
    if attached and attached[0]:
        raise ConfigurationError(
            f"the project's own database is called {_DATABASE}, as that of the lake's tables is: {attached[0]}",
            hint="Give its file another name ('path' in profiles.yml).",
        )
    current = connection.execute("SELECT current_database(), current_schema()").fetchone() or ()
    connection.execute(f"ATTACH IF NOT EXISTS ':memory:' AS {_DATABASE}; USE {_DATABASE}")
    connection.execute(snapshot.views("duckdb"))
    connection.execute("CREATE SCHEMA IF NOT EXISTS lake")
    for name in _STATE:
        connection.execute(f"DROP TABLE IF EXISTS {name}")
        snapshot.table(name).to_duckdb(connection).create(name)
    connection.execute("USE " + ".".join('"' + name.replace('"', '""') + '"' for name in current))


def sources(snapshot: Snapshot) -> str:
    """Return a project's `sources.yml`: tables and columns of silver and history, and how old each may be."""
    lines = ["version: 2", "sources:"]
    databases: dict[str, list[str]] = {}
    for name in snapshot.names():
        database, _, table = name.partition(".")
        if database in {"silver", "history"}:
            databases.setdefault(database, []).append(table)
    for database, tables in sorted(databases.items(), reverse=True):
        lines += [f"  - name: {database}", f"    database: {_DATABASE}", "    tables:"]
        for table in tables:
            lines += _table(snapshot, f"{database}.{table}", table)
    return "\n".join(lines) + "\n"


def _table(snapshot: Snapshot, name: str, table: str) -> list[str]:
    opened = snapshot.table(name)
    stream = opened.published.stream
    published = f"SELECT max(finished_at) FROM published.lake.published WHERE stream = '{stream}'"  # noqa: S608 - a stream's name.
    return [
        f"      - name: {_text(table)}",
        f"        description: {_text(f'{opened.published.table} of stream {stream}')}",
        "        config:",
        f"          loaded_at_query: {_text(published)}",
        "          freshness: {warn_after: {count: 1, period: hour}}",
        "        columns:",
        *(_column(column) for column in opened.columns),
    ]


def _column(column: Column) -> str:
    return f"          - {{name: {_text(column.name)}, data_type: {_text(type_name(column))}}}"


def _text(plain: str) -> str:
    """Return a text as dbt reads it: a template of Jinja's, as JSON, which is YAML but for some characters."""
    template = _JINJA.sub("{{ '{' }}", plain)
    return _NO_YAML.sub(lambda each: f"\\u{ord(each[0]):04x}", json.dumps(template, ensure_ascii=False))
