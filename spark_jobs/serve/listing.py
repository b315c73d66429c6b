"""The names and columns that clients list: Spark's own catalog of the process, kept at what is published.

JDBC's and Spark's lists of tables and columns come from that catalog, not from the one that reads tables. Each name is a view in
it, made again only where a table is new or has other columns, since that opens the table.
"""

import logging
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from headrace.errors import ReplicationError
from spark_jobs import storage
from spark_jobs.errors import explained
from spark_jobs.query.published_tables import Relation

_log = logging.getLogger(__name__)
DATABASES = ("silver", "history", "bronze", "lake", "headrace")


@dataclass
class Listing:
    """What is listed; the session is one of the server's own."""

    spark: SparkSession
    #: By name, the path and the columns' mark with which it was listed.
    _listed: dict[str, tuple[str, str]] = field(default_factory=dict)

    def begin(self) -> None:
        """Make the databases."""
        for database in DATABASES:
            self.spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")

    def keep(self, relations: list[Relation], columns: dict[str, str]) -> None:
        """List these names and no others; `columns` has a mark of a table's columns by its path."""
        wanted = {f"{each.database}.{storage.name(each.name)}": each for each in relations}
        for name in self._listed.keys() - wanted.keys():
            self.spark.sql(f"DROP VIEW IF EXISTS {name}")
            del self._listed[name]
        for name, relation in wanted.items():
            mark = (relation.path, columns.get(relation.path, ""))
            if self._listed.get(name) == mark:
                continue
            try:
                with explained(name):
                    self.spark.sql(f"CREATE OR REPLACE VIEW {name} AS {relation.sql()}")
                self._listed[name] = mark
            except ReplicationError as error:
                # It is not listed, and can be asked as far as it can be read.
                _log.warning("%s is not listed: %s", name, error.message)
