"""Which name a table has in SQL: letters of ASCII, digits and `_`, unique in the lake regardless of case, and permanent.

`accounts` for `public.accounts`, `audit_log` for `audit.log`. A name that another table has, and a name of other characters, gets
a suffix made of the source's own name. Names that were assigned never change; what is assigned next does not depend on the
order in which tables are given. What was assigned is recorded in a table of the lake.

The names of tables in SQL as the lake records them: `names` under its root, a row for each table, never changed.
"""

import hashlib
import json
import re
import unicodedata
import uuid
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime

from delta import exceptions as delta_errors
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - PySpark's own idiom.

from headrace.configuration.lake import LakeFile
from headrace.errors import Retryable
from spark_jobs import storage
from spark_jobs.state import delta_log

#: A stream and a table of it, by its source's `schema.table`.
Place = tuple[str, str]

_PLAIN = re.compile(r"[A-Za-z0-9_]+")
_OTHER = re.compile(r"[^A-Za-z0-9_]+")
#: Characters of a suffix, at least, and of what is before it, at most.
_SUFFIX, _MOST = 8, 80


def assign(recorded_names: Mapping[Place, str], places: Iterable[Place]) -> dict[Place, str]:
    """Return the name of each place: the known one where there is one, else a new one that no other place has."""
    all_places = sorted(set(places))
    names_by_place = {place: recorded_names[place] for place in all_places if place in recorded_names}
    taken = {name.casefold() for name in recorded_names.values()}
    groups: dict[str, list[Place]] = defaultdict(list)
    for place in all_places:
        if place not in recorded_names:
            groups[_plain(place[1]).casefold()].append(place)
    # Plain names first, so that no suffixed one takes theirs.
    for base, group in sorted(groups.items(), key=lambda item: (any(_odd(table) for _, table in item[1]), item[0])):
        for place, name in _of_group(base, group, taken):
            names_by_place[place] = name
            taken.add(name.casefold())
    return {place: names_by_place[place] for place in all_places}


def _of_group(base: str, group: list[Place], taken: set[str]) -> Iterable[tuple[Place, str]]:
    """Yield the names of places that would have one name. `taken` grows while this runs."""
    streams = {stream for stream, _ in group}
    shared = base in taken or len({stream for stream, table in group if not _odd(table)}) > 1
    for stream in sorted(streams):
        # The table that is called so in schema public keeps the short name.
        own = sorted(
            (place for place in group if place[0] == stream), key=lambda p: (not p[1].startswith("public."), p)
        )
        for place in own:
            short = _plain(place[1])
            if _odd(place[1]):
                yield place, _suffixed(short, place, taken)
                continue
            if shared:
                short = f"{stream.replace('-', '_')}_{short}"
            yield place, short if short.casefold() not in taken else _suffixed(_plain(place[1]), place, taken)


def _plain(table: str) -> str:
    """Return the short name of a table, in characters that SQL takes."""
    schema, _, own = table.partition(".")
    name = own if schema == "public" else f"{schema}_{own}"
    if not _odd(table):
        return name
    # Letters lose their accents; what is left of other scripts is the suffix alone.
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    return _OTHER.sub("_", ascii_only).strip("_")[:_MOST] or "table"


def _odd(table: str) -> bool:
    schema, _, own = table.partition(".")
    return not (_PLAIN.fullmatch(schema) and _PLAIN.fullmatch(own))


def _suffixed(name: str, place: Place, taken: set[str]) -> str:
    # The table's name alone, so it has one name in every lake; where two streams have it, the stream's name too.
    digests = (_digest(place[1]), _digest("\0".join(place)))
    candidates = (f"{name}_{digest[:length]}" for length in range(_SUFFIX, 65, 8) for digest in digests)
    return next(candidate for candidate in candidates if candidate.casefold() not in taken)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


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
    return assign(_recorded(spark, lake)[1], places)


def record(spark: SparkSession, lake: LakeFile, former: Iterable[Place], new: Iterable[Place]) -> None:
    """Record a name for every table that has none; `former` ones were published before, and choose first.

    Raises Retryable when other loads record names all the time.
    """
    former, new = set(former), set(new)
    for _ in range(_ATTEMPTS):
        version, names = _recorded(spark, lake)
        if former | new <= names.keys():
            return
        # What a reader saw of an earlier release's lake stays, whatever comes with this load.
        all_names = assign(names | assign(names, former), former | new)
        given = {place: all_names[place] for place in all_names.keys() - names.keys()}
        with suppress(*_CONFLICTS):
            if _append(spark, lake, names, given, version + 1):
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
        columns = ("stream", "table", "name")
        rows = storage.read_rows(
            spark, place, mark[0], columns=columns, choose=lambda rows: rows, query=lambda rows: rows
        )
        _read[place] = (mark, {(row["stream"], row["table"]): row["name"] for row in rows})
    return _read[place][0][0], _read[place][1]


def _append(spark: SparkSession, lake: LakeFile, names: dict[Place, str], given: dict[Place, str], number: int) -> bool:
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
    note = delta_log.read_note(info, _NOTE)
    if newest != number or note is None or note["attempt"] != attempt:
        return False
    _read[path(lake)] = (newest, delta_log.identify(info)), names | given
    return True
