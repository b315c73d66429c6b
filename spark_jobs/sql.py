"""Questions in Spark SQL on the lake as published, and their answers as a table, JSON lines or CSV.

A table is made known to Spark when a question names it, at the version that was published last when the question was asked:
a lake of hundreds of tables answers as quickly as one of two.
`silver_live` is made anew for every question. Called by `headrace lake sql` and its prompt.
"""

import csv
import json
import re
from datetime import datetime
from typing import Literal, TextIO

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from rich.console import Console
from rich.table import Table

from headrace.configuration.lake import LakeFile
from headrace.errors import ConfigurationError
from spark_jobs.failures import explained
from spark_jobs.overlays import Overlays
from spark_jobs.silver import published, read
from spark_jobs.silver.published import Published
from spark_jobs.silver.read import Relation

Form = Literal["table", "json", "csv"]

_LISTING = re.compile(r"\s*(show|use)\b", re.IGNORECASE)


class Desk:
    """Where questions are asked: knows the lake's tables and registers those that a question names.

    With `as_of`, `silver` is shown as it stood at that moment at its sources.
    """

    def __init__(self, spark: SparkSession, lake: LakeFile, *, as_of: datetime | None = None) -> None:
        self._spark, self._lake = spark, lake
        self._known: dict[str, Relation] = {}
        self._overlays = [Overlays(spark, lake, "silver_live")]
        if as_of is not None:
            self._overlays.append(Overlays(spark, lake, "silver", as_of=as_of))
        self._laid = {overlays.database for overlays in self._overlays}
        for database in ("silver", "silver_live", "history", "bronze", "lake", "headrace"):
            spark.sql(f"CREATE DATABASE IF NOT EXISTS {database}")

    def close(self) -> None:
        """Remove what questions left in the lake's scratch folder."""
        for overlays in self._overlays:
            overlays.close()

    def _relations(self, streams: list[Published]) -> list[Relation]:
        """Return the tables that can be asked as they are published."""
        return [one for one in read.relations(self._spark, self._lake, streams) if one.database not in self._laid]

    def names(self) -> list[str]:
        """Return the names of the tables that can be asked, without looking for tables that no load has seen yet."""
        found = read.relations(self._spark, self._lake)
        live = (f"silver_live.{one.name}" for one in found if one.database == "silver")
        return sorted([*(f"{one.database}.{one.name}" for one in found), *live])

    def columns(self) -> list[str]:
        """Return the names of all columns of silver."""
        found: set[str] = set()
        for relation in read.relations(self._spark, self._lake):
            if relation.database == "silver":
                found |= set(self._spark.sql(relation.sql()).columns)
        return sorted(found)

    def ask(self, question: str) -> DataFrame:
        """Return the answer; raise ConfigurationError for a question that Spark cannot understand."""
        question = question.strip().rstrip(";")
        asked = question.casefold()
        with explained("sql"):
            everything = bool(_LISTING.match(question))
            streams = published.latest_of_all(self._spark, self._lake)
            for relation in self._relations(streams):
                if everything or relation.name.casefold() in asked:
                    self._register(relation)
            for overlays in self._overlays:
                # A stream's newest rows are looked for only when somebody asks for them.
                if everything or overlays.database in asked:
                    for name, statement in overlays.statements(asked, streams, everything=everything):
                        self._view(f"{overlays.database}.`{name}`", statement)
            try:
                return self._spark.sql(question)
            except (AnalysisException, ParseException) as error:
                raise ConfigurationError(_readable(error)) from error

    def _register(self, relation: Relation) -> None:
        name = f"{relation.database}.`{relation.name}`"
        if self._known.get(name) != relation or relation.version is None:
            self._view(name, relation.sql())
            self._known[name] = relation

    def _view(self, name: str, statement: str) -> None:
        self._spark.sql(f"CREATE OR REPLACE VIEW {name} AS {statement}")


def write(answer: DataFrame, form: Form, to: TextIO, *, most: int | None = None) -> None:
    """Write the answer's rows, at most `most` of them; text is Spark's own, so no value is changed on the way."""
    with explained("sql"):
        names = answer.columns
        # Columns of an answer may share a name: they are told apart by place.
        placed = answer.toDF(*(str(place) for place in range(len(names))))
        if form == "json":
            placed = placed.select(*(F.to_json(F.struct(F.col(c).alias("v"))).alias(c) for c in placed.columns))
        else:
            placed = placed.select(*(F.col(c).cast("string") for c in placed.columns))
        rows = placed.limit(most).collect() if most is not None else placed.collect()
    if form == "csv":
        out = csv.writer(to, lineterminator="\n")
        out.writerow(names)
        out.writerows(rows)
    elif form == "json":
        for row in rows:
            cells = zip(names, row, strict=True)
            to.write(json.dumps({name: json.loads(cell).get("v") for name, cell in cells}, ensure_ascii=False) + "\n")
    elif names:
        table = Table(*names)
        for row in rows:
            table.add_row(*("NULL" if cell is None else cell for cell in row))
        Console(file=to, highlight=False, markup=False).print(table)


def write_parquet(answer: DataFrame, folder: str) -> None:
    """Write the answer into a new folder of Parquet files, with its own types; raise ConfigurationError when it cannot be."""
    with explained("sql"):
        try:
            answer.write.parquet(folder)
        except AnalysisException as error:
            raise ConfigurationError(_readable(error)) from error


def _readable(error: Exception) -> str:
    """Return the first sentences of Spark's message, without its plan."""
    text = re.split(r"\n\s*\n|;\n'|SQLSTATE", str(error), maxsplit=1)[0].strip()
    return (
        re.sub(r"\s+", " ", re.sub(r"^\[[A-Z_.]+\]\s*", "", text)).rstrip(" .;")
        or "Spark cannot understand the question"
    )
