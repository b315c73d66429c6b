"""Which tables may hold other values than their sources since a schema changed: the log has no record of what that did to rows.

A renamed column is a column that vanished and another one that appeared; an added column may have a default, which older rows
have at the source alone. An edge that sees such a change marks the schema record (`rewritten`, with the reasons); for other
records, what the schemas suggest is a warning. A truncate of the source, with which `edge snapshot --replace` begins, ends both.
Called when a load or a rebuild has brought up a table.
"""

import shlex
from collections.abc import Mapping, Sequence
from itertools import pairwise

from headrace.schema import TableSchema
from spark_jobs.silver import types
from spark_jobs.silver.schema_versions import SchemaVersions

#: What a warning begins with when the edge itself marked the table.
NEEDS_COPY = "needs copy"


def warnings(
    table: str, known: Mapping[str, str], versions: SchemaVersions, cleared: Mapping[str, str]
) -> dict[str, str]:
    """Return the warnings about a table by source and position: earlier ones and those of a range, but for what a copy ended.

    `cleared` has the position of each source's last truncate.
    """
    found = dict(known)
    for source, schemas in versions.of.items():
        position, first = schemas[0]
        if position and first.rewritten:
            # A table that was renamed is a new one here.
            found[f"{source} {position}"] = _advice(_rewritten(first.rewritten), table, source)
        for (_, old), (position, new) in pairwise(schemas):
            if reason := _reason(old, new):
                found[f"{source} {position}"] = _advice(reason, table, source)
    return {place: text for place, text in sorted(found.items()) if not _ended(place, cleared)}


def _advice(reason: str, table: str, source: str) -> str:
    return f"{reason}. To be sure, copy it again at {source}: 'headrace edge snapshot {shlex.quote(table)} --replace'."


def _rewritten(reasons: Sequence[str]) -> str:
    return f"{NEEDS_COPY}: the source rewrote its rows ({', '.join(reasons)})"


def _ended(place: str, cleared: Mapping[str, str]) -> bool:
    source, _, position = place.rpartition(" ")
    return position <= cleared.get(source, "")


def _reason(old: TableSchema, new: TableSchema) -> str | None:
    """Return why rows that did not change since may differ from their source; None when there is no reason."""
    if new.rewritten is not None:
        return _rewritten(new.rewritten) if new.rewritten else None
    before = {column.name: types.of(column) for column in old.columns}
    after = {column.name: types.of(column) for column in new.columns}
    appeared = [name for name in after if name not in before]
    vanished = [name for name in before if name not in after]
    renamed = [name for name in appeared if any(after[name] == before[other] for other in vanished)]
    parts = []
    if renamed:
        gone = ", ".join(other for other in vanished if any(before[other] == after[name] for name in renamed))
        parts.append(f"{', '.join(renamed)} may be the former {gone}: rows that did not change since are null there")
    if added := [name for name in appeared if name not in renamed]:
        parts.append(
            f"{', '.join(added)} was added: rows that did not change since are null there, whatever its default"
        )
    return "; ".join(parts) or None
