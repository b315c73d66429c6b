"""Pathway keeps the newest change of each key of a table's topic, and prints the rows that are left.

python pathway_rows.py --bootstrap kafka:9092 --topic bank.public.accounts --key id

It reads what is in the topic now and ends; with `mode="streaming"` it goes on, and passes on each change of a row.
"""

import argparse
import json
from typing import Any

import pathway as pw


class Change(pw.Schema):
    """What is needed of a change."""

    op: str
    before: pw.Json | None
    after: pw.Json | None
    source: pw.Json


def main() -> None:
    """Read from the topic's beginning."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", required=True)
    options.add_argument("--topic", required=True)
    options.add_argument("--key", required=True, help="the table's key columns, divided by commas")
    options.add_argument("--group", default="pathway-rows")
    arguments = options.parse_args()
    key = arguments.key.split(",")

    def key_of(row: pw.Json) -> str:
        return json.dumps([row.value[name] for name in key])

    settings = {
        "bootstrap.servers": arguments.bootstrap,
        "group.id": arguments.group,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    records = pw.io.kafka.read(settings, arguments.topic, schema=Change, format="json", mode="static")
    changes = records.filter(pw.this.op != "t").select(
        key=pw.apply(key_of, pw.coalesce(pw.this.after, pw.this.before)),
        position=pw.this.source["position"].as_str(),
        op=pw.this.op,
        row=pw.this.after,
    )
    newest = changes.groupby(pw.this.key).reduce(at=pw.reducers.argmax(pw.this.position))
    rows = changes.ix(newest.at).filter(pw.this.op != "d")
    kept: dict[Any, Any] = {}

    def changed(key: Any, row: dict[str, Any], is_addition: bool, **_: Any) -> None:
        if is_addition:
            kept[key] = row["row"].value
        else:
            kept.pop(key, None)

    pw.io.subscribe(rows, on_change=changed)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    for row in kept.values():
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
