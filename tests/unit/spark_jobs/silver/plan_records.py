"""Records of bronze in a model of it: what they describe, what a range of them holds, and what they make of rows."""

import json
from dataclasses import dataclass
from functools import lru_cache

from headrace.schema import COPY_BEGINS, COPY_ENDS, TableSchema
from spark_jobs.silver.profiles import BatchProfile, Beyond, TableProfile, Truncate
from spark_jobs.silver.schema_versions import SchemaRecord


@dataclass(frozen=True)
class Record:
    """A record of bronze."""

    source: str
    table: str
    position: str
    #: An upsert, a truncate, a schema record, or a mark of a copy.
    kind: str
    key: int = 0
    last: bool = False
    #: Whether silver cannot hold it.
    bad: bool = False

    @property
    def is_change(self):
        return self.kind in "ct"


@lru_cache(maxsize=1024)
def schema_text(source, table, mark):
    schema, _, name = table.partition(".")
    column = {"name": "id", "typeName": "int8", "length": None, "scale": None, "position": 1, "optional": False}
    of = {"name": source, "schema": schema, "table": name, "snapshot": mark, "position": "0"}
    change = {"type": "CREATE", "id": "x", "table": {"primaryKeyColumnNames": ["id"], "columns": [column]}}
    text = json.dumps({"databaseName": "b", "schemaName": schema, "ddl": None, "source": of, "tableChanges": [change]})
    return text, TableSchema.parse(text)


def schema_record(record):
    mark = record.kind if record.kind in {COPY_BEGINS, COPY_ENDS} else None
    text, schema = schema_text(record.source, record.table, mark or "false")
    return SchemaRecord(
        source=record.source, table=record.table, position=record.position, value=text, schema=schema, mark=mark
    )


def profile(records, low, upto=None):
    """Return what batch_profile.profile finds, in Python."""
    chosen = [r for r in records if r.position > low.get(r.source, "")]
    high = dict(low) if upto is None else dict(upto)
    if upto is None:
        for r in chosen:
            if r.last and r.kind != "schema":
                high[r.source] = max(r.position, high.get(r.source, ""))
    inside = [r for r in chosen if r.position <= high.get(r.source, "")]
    seen = []
    for source, table in sorted({(r.source, r.table) for r in inside if r.is_change}):
        own = [r for r in inside if (r.source, r.table) == (source, table) and r.is_change]
        truncates = [Truncate(position=r.position, source=source, at=0) for r in own if r.kind == "t"]
        positions = [r.position for r in own]
        seen.append(
            TableProfile(
                source=source,
                table=table,
                changes=len(own),
                keys=1,
                first=min(positions),
                final=max(r.position for r in chosen if (r.source, r.table) == (source, table) and r.is_change),
                truncates=tuple(truncates),
                deletes=False,
                partial=False,
                rekeyed=False,
                rewrites=False,
                keyless=None,
            )
        )
    beyond = {}
    for source in {r.source for r in chosen}:
        over = [r for r in chosen if r.source == source and r.position > high.get(source, "")]
        if over:
            changes = sum(r.is_change for r in over)
            beyond[source] = Beyond(changes=changes, upto=max(r.position for r in over))
    marks = [schema_record(r) for r in sorted(inside, key=lambda r: r.position) if not r.is_change]
    return BatchProfile(high=high, seen=seen, committed_ms={}, beyond=beyond, records=marks)


def fold(rows, records):
    """Return the rows of a table, by source and key, once records were applied in order."""
    rows = dict(rows)
    for r in sorted(records, key=lambda r: r.position):
        if r.kind == "t":
            rows = {place: position for place, position in rows.items() if place[0] != r.source}
        elif r.kind == "c":
            rows[r.source, r.key] = r.position
    return rows
