"""The rows that a consumer holds who takes a source's records in order, beside those that the source holds.

It is what a snapshot promises: whatever was copied, copied again or cut short, in the end both are the same.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.history.checker import SHOWN, Difference
from tests.history.records import Record
from tests.history.transactions import Row, same

_Key = tuple[Any, ...]


def held(source: str, topic: Iterable[Record]) -> dict[str, dict[_Key, Row]]:
    """Return each table's rows by key, as they follow from the records; a column that was never sent is absent."""
    tables: dict[str, dict[_Key, Row]] = {}
    for record in topic:
        if record.is_schema or record.source["name"] != source:
            continue
        rows, value = tables.setdefault(record.table, {}), record.value
        if value["op"] == "t":
            rows.clear()
            continue
        if record.key is None:
            continue
        key = former = tuple(record.key.values())
        before = value["before"]
        if value["op"] == "u" and before is not None and all(name in before for name in record.key):
            former = tuple(before[name] for name in record.key)
        old = rows.pop(former, {})
        if value["op"] != "d":
            rows[key] = {name: old[name] for name in value.get("unchanged", []) if name in old} | value["after"]
    return tables


def check_state(
    source: str, topic: Iterable[Record], stored: Mapping[str, Sequence[Row]], keys: Mapping[str, tuple[str, ...]]
) -> list[Difference]:
    """Return how the rows that follow from the records differ from those stored, for each table that is given."""
    tables = held(source, topic)
    differences = []
    for table, rows in stored.items():
        has, should = tables.get(table, {}), {tuple(row[name] for name in keys[table]): row for row in rows}
        missing, extra = should.keys() - has.keys(), has.keys() - should.keys()
        altered = [key for key in should.keys() & has.keys() if not _same(has[key], should[key])]
        for words, wrong in (("missing", missing), ("too many", extra), ("other than stored", altered)):
            if wrong:
                shown = ", ".join(map(str, list(wrong)[:SHOWN]))
                differences.append(Difference("state", f"{table}: {len(wrong)} rows {words}: {shown}"))
    return differences


def _same(has: Row, should: Row) -> bool:
    return has.keys() == should.keys() and all(same(has[name], should[name]) for name in should)
