"""Queries in Spark SQL on the lake as published.

A table is registered with Spark when a query names it, at the version that was published last when the query began: a lake of
hundreds of tables answers as quickly as one of two. `silver_live` is made for each query. Called by `headrace lake sql` and its
prompt.
"""

import re
from datetime import datetime
from typing import TextIO

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError
from spark_jobs.errors import explained, readable
from spark_jobs.query import published_tables, results, statements
from spark_jobs.query.overlay_databases import Overlays
from spark_jobs.query.published_tables import Relation
from spark_jobs.query.results import Form
from spark_jobs.state import published
from spark_jobs.state.published import Published

_LISTING = re.compile(r"\s*(show|use)\b", re.IGNORECASE)


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
        for database in ("silver", "silver_live", "history", "bronze", "lake", "headrace"):
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")

    def close(self) -> None:
        """Remove what queries left in the lake's scratch folder."""
        for overlays in self._overlays:
            overlays.close()

    def _relations(self, streams: list[Published]) -> list[Relation]:
        """Return the tables that can be queried as they are published."""
        return [
            one
            for one in published_tables.relations(self._spark, self._lake, streams)
            if one.database not in self._laid
        ]

    def names(self) -> list[str]:
        """Return the names of the tables that can be queried, without looking for tables that no load has seen yet."""
        found = published_tables.relations(self._spark, self._lake)
        live = (f"silver_live.{one.name}" for one in found if one.database == "silver")
        return sorted([*(f"{one.database}.{one.name}" for one in found), *live])

    def columns(self, typed: str) -> list[str]:
        """Return the names of the columns of silver's tables that a text names: only these tables are opened."""
        typed, found = typed.casefold(), set[str]()
        for relation in published_tables.relations(self._spark, self._lake):
            if relation.database == "silver" and relation.name.casefold() in typed:
                if relation not in self._columns:
                    self._columns[relation] = self._spark.sql(relation.sql()).columns
                found |= set(self._columns[relation])
        return sorted(found)

    def ask(self, query: str) -> DataFrame:
        """Return the answer; raise ConfigurationError for a query that Spark cannot understand, and for what writes."""
        query = query.strip().rstrip(";")
        folded = query.casefold()
        with explained("sql"):
            try:
                statements.refuse_writes(self._spark, query)
            except ParseException as error:
                raise ConfigurationError(readable(error)) from error
            everything = bool(_LISTING.match(query))
            streams = published.latest_of_all(self._spark, self._lake)
            for relation in self._relations(streams):
                if everything or relation.name.casefold() in folded:
                    self._register(relation)
            for overlays in self._overlays:
                # A stream's newest rows are read only when a query names them.
                if everything or overlays.database in folded:
                    for name, statement in overlays.statements(folded, streams, everything=everything):
                        self._view(f"{overlays.database}.`{name}`", statement)
            try:
                return self._spark.sql(query)
            except (AnalysisException, ParseException) as error:
                raise ConfigurationError(readable(error)) from error

    def _register(self, relation: Relation) -> None:
        name = f"{relation.database}.`{relation.name}`"
        if self._known.get(name) != relation or relation.version is None:
            self._view(name, relation.sql())
            self._known[name] = relation

    def _view(self, name: str, statement: str) -> None:
        self._spark.sql(f"CREATE OR REPLACE VIEW {name} AS {statement}")


def run_script(desk: SqlEngine, script: str, form: Form, to: TextIO) -> None:
    """Run the statements of a script one after the other and write their answers; an error ends it."""
    for statement in statements.split(script):
        results.write(desk.ask(statement), form, to)
