"""Silver as the last load of a stream published it: each table at the version that belongs with the others.

Called by command.py; implements verify.SilverTables.
"""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from spark_jobs.silver import published, shape, table
from spark_jobs.verify import canonical

#: What the canonical texts rely on, whatever the lake's file sets.
_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.ansi.enabled": "true"}


class PublishedSilver:
    """The silver tables of one stream."""

    def __init__(self, spark: SparkSession, lake: LakeFile, stream: str) -> None:
        self._spark = spark.newSession()
        for name, value in _SETTINGS.items():
            self._spark.conf.set(name, value)
        self._lake = lake
        self._stream = stream
        self._state = published.latest(self._spark, lake, stream)

    def names(self, source: str) -> set[str]:
        """Return the tables, `schema.table`, that the source has sent changes of."""
        return {name for name, known in self._state.tables.items() if source in known.schemas}

    def frame(self, source: str, name: str) -> DataFrame | None:
        """Return a source's rows of a table, with the table's own columns only; None when there is no silver table."""
        known = self._state.tables.get(name)
        if known is None or known.version is None:
            return None
        path = table.path(self._lake, self._stream, name)
        whole = self._spark.read.format("delta").option("versionAsOf", known.version).load(path)
        mine = whole.where(F.col(shape.SOURCE) == source)
        return mine.select(*(canonical.silver_name(column) for column in whole.columns if column not in shape.OWN))

    def problem(self, name: str) -> str | None:
        """Return why the load stopped at a table; None when it did not."""
        known = self._state.tables.get(name)
        return known.problem if known is not None else None
