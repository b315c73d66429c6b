"""The schema records of published tables, each kept once: `<root>/schemas` has a row for each text, by the text's own digest.

A text is what a record holds of the table alone: edges write a schema again in each session, with another position and time.
What is published names schemas by digest, so publishing costs nothing for schemas that did not change. Called by publication.py.

The schemas of records in Avro are kept once they were looked up: `<root>/avro_schemas` has a row for each id of a stream. They
need no registry any more: records are read again as they were, also when the registry was emptied since. Called by bronze.

A text that is written and never needed, or twice, by two loads at the same time, does no harm.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import CorruptInput, NeedsOperator
from headrace.schema import TableSchema
from spark_jobs import storage
from spark_jobs.errors import is_conflict
from spark_jobs.state import delta_log

_TRIES = 8
#: Texts by digest, of each table of them, that this process has read or written; one never changes.
_known: defaultdict[str, dict[str, str]] = defaultdict(dict)


class SchemaTexts(Mapping[str, str]):
    """The newest schema record of each source, read on first use."""

    def __init__(self, spark: SparkSession, place: str, digests: Mapping[str, str]) -> None:
        self._spark, self._place = spark, place
        self.digests = dict(digests)

    def __getitem__(self, source: str) -> str:
        """Return the record of a source, with all of the table in one reading."""
        digest = self.digests[source]
        if digest not in _known[self._place]:
            self.fetch(self.digests.values())
        return _known[self._place][digest]

    def fetch(self, digests: Iterable[str]) -> None:
        """Read the records of these digests, which may be other tables', ahead of their first use."""
        _fetch(self._spark, self._place, digests)

    def __iter__(self) -> Iterator[str]:
        """Yield the sources."""
        return iter(self.digests)

    def __len__(self) -> int:
        """Return how many sources there are."""
        return len(self.digests)

    def __or__(self, other: Mapping[str, str]) -> dict[str, str]:
        """Return the records with others in their place."""
        return {**self, **other}

    def __eq__(self, other: object) -> bool:
        """Whether the records are the same, by their digests."""
        return isinstance(other, Mapping) and self.digests == digests(other)

    def __hash__(self) -> int:
        """Return the hash that goes with equality."""
        return hash(frozenset(self.digests.items()))


def path(lake: LakeFile) -> str:
    """Return the path of the table."""
    return f"{lake.root}/schemas"


def digests(texts: Mapping[str, str]) -> dict[str, str]:
    """Return the digest of each source's schema record."""
    return dict(texts.digests) if isinstance(texts, SchemaTexts) else {s: _kept(t)[0] for s, t in texts.items()}


def fetch_together(tables: Iterable[Mapping[str, str]]) -> None:
    """Read the schema records of several tables in one reading, where each table would take one of its own."""
    unread = [texts for texts in tables if isinstance(texts, SchemaTexts)]
    if unread:
        unread[0].fetch(digest for texts in unread for digest in texts.digests.values())


def _fetch(spark: SparkSession, place: str, needed_digests: Iterable[str]) -> None:
    """Read texts that this process does not know yet, all at once; raise NeedsOperator when one is lost."""
    texts = _known[place]
    if not (missing := sorted(set(needed_digests) - texts.keys())):
        return
    if delta_log.is_table(spark, place):
        wanted = set(missing)
        # As text: thousands of literals made by Python take seconds.
        chosen = F.expr("digest IN ({})".format(", ".join(f"'{digest}'" for digest in missing)))
        rows = storage.read_rows(
            spark,
            place,
            delta_log.version(spark, place),
            choose=lambda rows: rows.take([n for n, d in enumerate(rows["digest"].to_pylist()) if d in wanted]),
            query=lambda rows: rows.filter(chosen),
        )
        texts.update((row["digest"], row["text"]) for row in rows)
    if set(missing) - texts.keys():
        raise NeedsOperator(
            f"{place} lacks schema records of tables that are published",
            hint="Somebody changed or removed that table. Restore it, or make silver again: 'headrace lake replay STREAM'.",
        )


def keep(spark: SparkSession, place: str, texts: Iterable[str]) -> None:
    """Append the texts that are not known to be there."""
    if not delta_log.is_table(spark, place):
        _known[place].clear()
    new = {digest: text for digest, text in map(_kept, texts) if digest not in _known[place]}
    if not new:
        return
    # From text, so that no Python process is started for a few rows.
    rows = json.dumps([{"digest": digest, "text": text} for digest, text in sorted(new.items())])
    parsed = F.from_json(F.lit(rows), "array<struct<digest: string, text: string>>")
    frame = spark.range(1).select(F.inline(parsed)).coalesce(1)
    _append(frame, place)
    _known[place].update(new)


def _append(frame: DataFrame, place: str) -> None:
    for tries in range(_TRIES):
        try:
            frame.write.format("delta").mode("append").save(place)
        except (PySparkException, Py4JError) as error:
            # The first loads of many streams make the table at the same time.
            if tries + 1 == _TRIES or not is_conflict(error):
                raise
        else:
            return


@lru_cache(maxsize=10_000)
def _kept(record: str) -> tuple[str, str]:
    """Return what is kept of a schema record, with its digest."""
    try:
        schema = TableSchema.parse(record)
    except CorruptInput:
        # The reader of the record reports what is wrong with it.
        text = record
    else:
        kept = {"source": {"schema": schema.schema, "table": schema.table}, "tableChanges": [schema.change()]}
        kept |= {"rewritten": schema.rewritten} if schema.rewritten is not None else {}
        text = json.dumps(kept, sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest(), text


#: Schemas by id, of each stream of each lake, that this process has read or written; None before the first look.
_known_avro: defaultdict[tuple[str, str], dict[int, str] | None] = defaultdict(lambda: None)


def read_avro(spark: SparkSession, lake: LakeFile, stream: str) -> Mapping[int, str]:
    """Return the Avro schemas of a stream by id; none where the lake's file has no registry."""
    if lake.registry is None:
        return {}
    place = (lake.root, stream)
    if (schemas := _known_avro[place]) is None:
        schemas = _known_avro[place] = _read_avro(spark, lake, stream)
    return schemas


def renew_avro(spark: SparkSession, lake: LakeFile, stream: str) -> Mapping[int, str]:
    """Return the Avro schemas of a stream with those that other processes have kept since."""
    _known_avro[lake.root, stream] = None
    return read_avro(spark, lake, stream)


def keep_avro(spark: SparkSession, lake: LakeFile, stream: str, schemas: Mapping[int, str]) -> None:
    """Append Avro schemas that are not kept yet."""
    # From text, so that no Python process is started for a few rows.
    rows = json.dumps([{"stream": stream, "id": number, "text": text} for number, text in sorted(schemas.items())])
    parsed = F.from_json(F.lit(rows), "array<struct<stream: string, id: int, text: string>>")
    frame = spark.range(1).select(F.inline(parsed)).coalesce(1)
    _append(frame, _avro_path(lake))
    _known_avro[lake.root, stream] = {**read_avro(spark, lake, stream), **schemas}


def _avro_path(lake: LakeFile) -> str:
    return f"{lake.root}/avro_schemas"


def _read_avro(spark: SparkSession, lake: LakeFile, stream: str) -> dict[int, str]:
    if not delta_log.is_table(spark, _avro_path(lake)):
        return {}
    rows = spark.read.format("delta").load(_avro_path(lake)).filter(F.col("stream") == stream).collect()
    return {row["id"]: row["text"] for row in rows}
