"""Queries in Spark SQL on the lake as published, and scripts of them: queries may run, and not what writes.

A table is registered with Spark when a query names it, at the version that was published last when the query began: a lake of
hundreds of tables answers as quickly as one of two. `silver_live` is made for each query. A table that cannot be shown fails
the queries that read it, and no others. Called by `headrace lake sql` and its prompt.

With `--server` a running `headrace lake serve` answers, by Spark Connect, and no JVM is started. The token of a user is taken
from the environment as Spark's own clients take it.
"""

import os
import re
import socket
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any, TextIO
from urllib.parse import urlsplit

from pyspark.errors import AnalysisException, ParseException, PySparkException, UnsupportedOperationException
from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError, NeedsOperator, NotConnected, ReplicationError
from spark_jobs.errors import explain, explained, readable
from spark_jobs.query import published_tables, results
from spark_jobs.query.overlay_databases import Overlays
from spark_jobs.query.published_tables import Relation
from spark_jobs.query.results import Form
from spark_jobs.state import published
from spark_jobs.state.published import Published

#: What can hold a `;` that ends nothing, and the `;` that does. Backslashes escape in a text, but not in a raw one.
_TOKENS = re.compile(
    r"""(?<!\w)[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|(?P<comment>--[^\n]*|/\*.*?\*/)|(?P<end>;)""",
    re.DOTALL,
)
_COMMAND = "org.apache.spark.sql.catalyst.plans.logical.Command"
#: Commands that only show something, or change this session alone.
_SHOWING = ("Show", "Describe", "Explain", "SetCommand", "ResetCommand", "SetCatalog", "SetNamespace")
#: Plans that write, or run what was not checked, and are no commands to Spark's parser: `InsertIntoDir`, Delta's
#: `RestoreTableStatement` and `CloneTableStatement`, scripts.
_WRITING = re.compile(
    r"(Insert|Append|Overwrite|Create|Replace|Delete|Update|Merge|Compound|Delta).*|.*Statement|.*ExecuteImmediate.*"
)
_TEMPORARY = "LocalTempView$"


def split(script: str) -> list[str]:
    """Return the statements of a script, without the semicolons that end them; those of comments alone are left out."""
    statements, start = [], 0
    for token in [*_TOKENS.finditer(script), None]:
        if token is None or token["end"]:
            statement = script[start : token.start() if token else None].strip()
            if _TOKENS.sub(lambda match: "" if match["comment"] else match[0], statement).strip():
                statements.append(statement)
            start = token.end() if token else start
    return statements


def refuse_writes(spark: SparkSession, statement: str) -> None:
    """Raise ConfigurationError for a statement that writes: the lake's tables are written by loads alone.

    Raises PySpark's ParseException for one that cannot be understood.
    """
    plan = spark._jsparkSession.sessionState().sqlParser().parsePlan(statement)  # noqa: SLF001 - PySpark offers no other way.
    command = spark._jvm.java.lang.Class.forName(_COMMAND)  # noqa: SLF001 - as above.
    for node in _nodes(plan):
        name = str(node.getClass().getSimpleName())
        if name == "CreateViewCommand" and node.viewType().getClass().getSimpleName() == _TEMPORARY:
            continue
        if name.startswith(_SHOWING):
            continue
        if command.isInstance(node) or _WRITING.fullmatch(name):
            raise ConfigurationError(
                f"this statement is refused since it is not a query ({name})",
                hint="The lake's tables are written by loads alone. SELECT, SHOW, DESCRIBE, EXPLAIN, USE, SET and CREATE "
                "TEMPORARY VIEW can be run; '--format parquet --to FOLDER' writes an answer elsewhere.",
            )


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    children = plan.children()
    for place in range(children.size()):
        yield from _nodes(children.apply(place))


_LISTING = re.compile(r"\s*show\s+(tables|views|table\s+extended)\b")
_DATABASES = frozenset({"silver", "silver_live", "valid", "history", "full_history", "bronze", "lake", "headrace"})
#: What a name in SQL consists of (names.py).
_WORD = re.compile(r"[a-z0-9_]+")
#: Content of a table that is only listed: a query that reads it without naming it in its text sees no rows of another version.
_LISTED = "SELECT raise_error('name this table in the text of the query') AS not_opened"


class SqlEngine:
    """Runs queries: registers those of the lake's tables that a query names.

    With `as_of`, `silver` is shown as it was at that moment at its sources.
    """

    def __init__(self, spark: SparkSession, lake: LakeFile, *, as_of: datetime | None = None) -> None:
        self._spark, self._lake = spark, lake
        self._known: dict[str, Relation] = {}
        self._columns: dict[Relation, list[str]] = {}
        self._overlays = [Overlays(spark, lake, "silver_live")]
        if as_of is not None:
            self._overlays.append(Overlays(spark, lake, "silver", as_of=as_of))
        self._laid = {overlays.database for overlays in self._overlays}
        for database in _DATABASES:
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")

    def close(self) -> None:
        """Remove what queries left in the lake's scratch folder."""
        for overlays in self._overlays:
            overlays.close()

    def _relations(self, streams: list[Published]) -> list[Relation]:
        """Return the tables that can be queried as they are published."""
        return [
            relation
            for relation in published_tables.relations(self._spark, self._lake, streams)
            if relation.database not in self._laid
        ]

    def names(self) -> list[str]:
        """Return the names of the tables that can be queried, without looking for tables that no load has seen yet."""
        relations = published_tables.relations(self._spark, self._lake)
        live = (f"silver_live.{relation.name}" for relation in relations if relation.database == "silver")
        return sorted([*(f"{relation.database}.{relation.name}" for relation in relations), *live])

    def columns(self, typed: str) -> list[str]:
        """Return the names of the columns of silver's tables that a text names: only these tables are opened."""
        typed, names = typed.casefold(), set[str]()
        for relation in published_tables.relations(self._spark, self._lake):
            if relation.database == "silver" and relation.name.casefold() in typed:
                if relation not in self._columns:
                    self._columns[relation] = self._spark.sql(relation.sql()).columns
                names |= set(self._columns[relation])
        return sorted(names)

    def ask(self, query: str) -> DataFrame:
        """Return the answer; raise ConfigurationError for a query that Spark cannot understand, and for what writes.

        Raises NeedsOperator or CorruptInput where a table that the query reads cannot be shown.
        """
        query = query.strip().rstrip(";")
        folded = query.casefold()
        words = set(_WORD.findall(folded))
        with explained("sql"):
            try:
                refuse_writes(self._spark, query)
            except ParseException as error:
                raise ConfigurationError(readable(error)) from error
            if _LISTING.match(folded):
                self._list(words)
                return self._answer(query, {})
            return self._answer(query, self._register(words))

    def _register(self, words: set[str]) -> dict[str, ReplicationError]:
        """Make the views of tables that a query names; return why some could not be made, by name."""
        problems: dict[str, ReplicationError] = {}
        streams = published.latest_of_all(self._spark, self._lake)
        for relation in self._relations(streams):
            name = f"{relation.database}.{relation.name}"
            new = self._known.get(name) != relation or relation.version is None
            if relation.name.casefold() in words and new and self._view(name, relation.sql, problems):
                self._known[name] = relation
        in_use = self._spark.catalog.currentDatabase()
        for overlays in self._overlays:
            # A stream's newest rows are read only when a query names them.
            if overlays.database in words or overlays.database == in_use:
                for name, place in overlays.outdated(words, streams):
                    self._view(f"{overlays.database}.{name}", partial(overlays.statement, place), problems)
        return problems

    def _view(self, name: str, statement: Callable[[], str], problems: dict[str, ReplicationError]) -> bool:
        """Make a view; where that fails there is none, rather than one of earlier rows, and the reason is a problem."""
        database, _, table = name.partition(".")
        try:
            with explained(name):
                self._spark.sql(f"CREATE OR REPLACE VIEW {database}.`{table}` AS {statement()}")
        except ReplicationError as error:
            problems[name.casefold()] = error
            self._known.pop(name, None)
            self._spark.sql(f"DROP VIEW IF EXISTS {database}.`{table}`")
            return False
        return True

    def _list(self, words: set[str]) -> None:
        """Let Spark know the names of the tables of a database, without opening any."""
        databases = words & _DATABASES or {self._spark.catalog.currentDatabase()}
        for name in self.names():
            database, _, table = name.partition(".")
            if database in databases:
                self._spark.sql(f"CREATE VIEW IF NOT EXISTS {database}.`{table}` AS {_LISTED}")

    def _answer(self, query: str, problems: dict[str, ReplicationError]) -> DataFrame:
        try:
            return self._spark.sql(query)
        except (AnalysisException, ParseException) as error:
            missing = str((error.getMessageParameters() or {}).get("relationName", "")).replace("`", "").casefold()
            for name, problem in problems.items():
                if missing and missing in {name, name.partition(".")[2], f"spark_catalog.{name}"}:
                    raise problem from error
            raise ConfigurationError(readable(error)) from error


#: Spark's own name of it.
TOKEN = "SPARK_CONNECT_AUTHENTICATE_TOKEN"  # noqa: S105 - no token, its name.
_CONNECT_SECONDS = 5


class RemoteEngine:
    """Runs queries at a server. Closed by `close`."""

    def __init__(self, address: str) -> None:
        """Connect; `address` is `host:port`, or as Spark has it `sc://host:port/;use_ssl=true`.

        Raises NotConnected where nothing listens, and NeedsOperator where Spark Connect's client is not installed.
        """
        url = address if address.startswith("sc://") else f"sc://{address}"
        parts = urlsplit(url)
        if "token=" in url:
            raise ConfigurationError(
                f"a token on the command line can be read by other users: give it in the environment, {TOKEN}"
            )
        # Spark's client would try for ten minutes.
        try:
            socket.create_connection((parts.hostname or "", parts.port or 15002), _CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            raise NotConnected(
                f"no server answers at {address}", hint="Start 'headrace lake serve', or correct --server."
            ) from error
        # PySpark looks at the version of pandas, which nothing here uses.
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
        os.environ["SPARK_CONNECT_MODE_ENABLED"] = "1"
        with refusals():
            try:
                self._spark: Any = SparkSession.builder.remote(url).getOrCreate()
            except ImportError as error:
                raise NeedsOperator(
                    "Spark Connect's client is not installed", hint="Run: pip install 'pyspark[connect]'."
                ) from error

    def close(self) -> None:
        """End the session."""
        self._spark.stop()

    def ask(self, query: str) -> DataFrame:
        """Return the answer; raise ConfigurationError for what the server refuses or cannot understand."""
        with refusals():
            answer: DataFrame = self._spark.sql(query.strip().rstrip(";"))
            return answer


@contextmanager
def refusals() -> Iterator[None]:
    """Convert what a server answers to errors of ours: it names what it refuses itself."""
    try:
        yield
    except ReplicationError:
        raise
    except (AnalysisException, UnsupportedOperationException) as error:
        raise ConfigurationError(readable(error)) from error
    except PySparkException as error:
        if "UNAUTHENTICATED" in str(error):
            raise NeedsOperator(
                "the server does not know this token", hint=f"Give a valid one in the environment, {TOKEN}."
            ) from error
        raise explain(error, "sql") from error


def run_script(sql_engine: SqlEngine | RemoteEngine, script: str, form: Form, to: TextIO) -> None:
    """Run the statements of a script one after the other and write their answers; an error ends it."""
    for statement in split(script):
        results.write(sql_engine.ask(statement), form, to)
