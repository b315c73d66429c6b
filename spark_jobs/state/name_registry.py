"""The names of tables in SQL as the lake records them: `names` under its root, a row for each table, never changed.

Loads record; readers take what is recorded, and the same rules for what no load has recorded yet. Two loads that record at the
same time cannot give one name twice: one of the two commits is refused by its transaction number, and chooses again.
"""

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime

from delta import exceptions as delta_errors
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import Retryable
from spark_jobs.state import delta_log, names
from spark_jobs.state.names import Place

_STRUCTURE = "array<struct<stream: string, `table`: string, name: string, assigned_at: timestamp>>"
_TRANSACTION = "headrace.names"
_NOTE = "names"
_ATTEMPTS = 10
#: What the commit of another writer makes of ours; PySpark's classes have no parent of their own.
_CONFLICTS = (
    delta_errors.ConcurrentAppendException,
    delta_errors.ConcurrentTransactionException,
    delta_errors.ConcurrentWriteException,
    delta_errors.MetadataChangedException,
    delta_errors.ProtocolChangedException,
)
#: The names of each lake as they were read last, and at which commit: no Spark job while nothing changed.
_read: dict[str, tuple[tuple[int, str], dict[Place, str]]] = {}


def path(lake: LakeFile) -> str:
    """Return the path of the table of names."""
    return f"{lake.root}/names"


def of(spark: SparkSession, lake: LakeFile, places: Iterable[Place]) -> dict[Place, str]:
    """Return the name in SQL of each table."""
    return names.assigned(_recorded(spark, lake)[1], places)


def record(spark: SparkSession, lake: LakeFile, former: Iterable[Place], new: Iterable[Place]) -> None:
    """Record a name for every table that has none; `former` ones were published before, and choose first.

    Raises Retryable when other loads record names all the time.
    """
    former, new = set(former), set(new)
    for _ in range(_ATTEMPTS):
        version, known = _recorded(spark, lake)
        if former | new <= known.keys():
            return
        # What a reader saw of an earlier release's lake stays, whatever comes with this load.
        found = names.assigned(known | names.assigned(known, former), former | new)
        given = {place: found[place] for place in found.keys() - known.keys()}
        with suppress(*_CONFLICTS):
            if _append(spark, lake, known, given, version + 1):
                return
    raise Retryable(
        "other loads record names of tables at the same time",
        hint="Run it again; what was committed is not done twice.",
    )


def _recorded(spark: SparkSession, lake: LakeFile) -> tuple[int, dict[Place, str]]:
    """Return what is recorded, and the version of the table; -1 when there is none."""
    place = path(lake)
    if not delta_log.is_table(spark, place):
        return -1, {}
    mark = delta_log.mark(spark, place)
    if place not in _read or _read[place][0] != mark:
        rows = spark.read.format("delta").load(place).collect()
        _read[place] = (mark, {(row["stream"], row["table"]): row["name"] for row in rows})
    return _read[place][0][0], _read[place][1]


def _append(spark: SparkSession, lake: LakeFile, known: dict[Place, str], given: dict[Place, str], number: int) -> bool:
    """Append names to those that are known, in the commit of a number; return whether that commit is there and the newest one."""
    attempt = uuid.uuid4().hex
    now = datetime.now(UTC).isoformat()
    rows = [{"stream": s, "table": t, "name": name, "assigned_at": now} for (s, t), name in sorted(given.items())]
    # From text, so that no Python process is started for a few rows.
    (
        spark.range(1)
        .select(F.inline(F.from_json(F.lit(json.dumps(rows)), _STRUCTURE)))
        .coalesce(1)
        .write.format("delta")
        .mode("append")
        # A commit of this number that is there already makes this one void, a simultaneous one makes it fail.
        .option("txnAppId", _TRANSACTION)
        .option("txnVersion", number)
        .option("userMetadata", delta_log.write(_NOTE, attempt=attempt))
        .save(path(lake))
    )
    newest, info = next(delta_log.commits(spark, path(lake)))
    note = delta_log.noted(info, _NOTE)
    if newest != number or note is None or note["attempt"] != attempt:
        return False
    _read[path(lake)] = ((newest, str(info.get("timestamp"))), known | given)
    return True
