"""Which schema was in force at which position of each source, in a table's range of changes.

A record is read with the schema in force at its position, so a table does not depend on where loads cut the log. A change of
the key ends a step: the changes before it are applied by the key that they were written with. Called by table_load.py.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.
from pyspark.sql import types as T  # noqa: N812 - PySpark's own idiom.

from headrace.schema import TableSchema
from spark_jobs.silver import debezium_forms, types


@dataclass(frozen=True, kw_only=True)
class SchemaRecord:
    """A schema record in a range."""

    source: str
    table: str
    position: str
    value: str
    schema: TableSchema
    #: Which mark of a copy it is: the beginning or the end (headrace/schema.py); None for neither.
    mark: str | None = None


class Span(NamedTuple):
    """Positions of a source: from one on, or from its first, and before another, or up to its last."""

    source: str
    since: str
    before: str | None

    def condition(self) -> Column:
        """Return the condition that a change of bronze is inside."""
        inside = F.col("source") == self.source
        if self.since:
            inside &= F.col("position") >= self.since
        return inside & (F.col("position") < self.before) if self.before is not None else inside


@dataclass(frozen=True)
class SchemaVersions:
    """Each source's schemas in the order in which they came into force."""

    #: The first position of each schema, empty for the one in force where the range begins, and the schema, by source.
    of: Mapping[str, Sequence[tuple[str, TableSchema]]]

    @classmethod
    def read(
        cls, former: Mapping[str, str], records: Sequence[SchemaRecord], low: Mapping[str, str]
    ) -> "SchemaVersions":
        """Return those of a range: `former` are the schema records in force earlier, `records` come in position order."""
        by_source: dict[str, list[tuple[str, TableSchema]]] = {
            source: [("", TableSchema.parse(text))] for source, text in former.items()
        }
        for record in records:
            versions = by_source.setdefault(record.source, [])
            if record.position <= low.get(record.source, ""):
                versions[:] = [("", record.schema)]
            elif not versions or versions[-1][1] != record.schema:
                versions.append((record.position, record.schema))
        return cls(by_source)

    def latest(self) -> list[TableSchema]:
        """Return each source's last schema."""
        return [versions[-1][1] for versions in self.of.values()]

    def earlier(self) -> list[TableSchema]:
        """Return the schemas that others replaced in the range."""
        return [schema for versions in self.of.values() for _, schema in versions[:-1]]

    def key_changes(self, *, whole: bool) -> dict[str, list[str]]:
        """Return the positions at which each source's records change from one key to another.

        To a key from none, or the other way round, where the records without a key have `whole` old rows. Otherwise these are
        read by the key that the table has at last.
        """
        return {
            source: [
                since
                for (_, old), (since, new) in pairwise(versions)
                if old.key != new.key and (whole or (old.key and new.key))
            ]
            for source, versions in self.of.items()
        }

    def single_precision(self) -> dict[str, list[Span]]:
        """Return where each column's values were of single precision: their text means another number as a double."""
        by_column: dict[str, list[Span]] = {}
        for source, versions in self.of.items():
            ends = [since for since, _ in versions[1:]]
            for (since, schema), before in zip(versions, [*ends, None], strict=True):
                for column in schema.columns:
                    if types.of(column) == T.FloatType():
                        by_column.setdefault(column.name, []).append(Span(source, since, before))
        return {name: _joined(spans) for name, spans in by_column.items()}

    def forms(self) -> dict[str, list[tuple[Span, debezium_forms.Form]]]:
        """Return where each column's values are in one of Debezium's forms."""
        by_column: dict[str, list[tuple[Span, debezium_forms.Form]]] = {}
        for source, versions in self.of.items():
            ends = [since for since, _ in versions[1:]]
            for (since, schema), before in zip(versions, [*ends, None], strict=True):
                for column in schema.columns:
                    if (form := debezium_forms.of(column)) is not None:
                        by_column.setdefault(column.name, []).append((Span(source, since, before), form))
        return by_column


def _joined(spans: list[Span]) -> list[Span]:
    """Return the spans with those that follow each other as one."""
    joined: list[Span] = []
    for span in spans:
        follows = joined and joined[-1].source == span.source and joined[-1].before == span.since
        joined.append(span._replace(since=joined.pop().since) if follows else span)
    return joined
