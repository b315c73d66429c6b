"""Quix Streams keeps the rows of a table from its topic, and prints them when nothing came for some seconds.

python quix_rows.py --bootstrap kafka:9092 --topic bank.public.accounts --key id
"""

import argparse
import json
from typing import Any

from quixstreams import Application


def main() -> None:
    """Read from the topic's beginning."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--bootstrap", required=True)
    options.add_argument("--topic", required=True)
    options.add_argument("--key", required=True, help="the table's key columns, divided by commas")
    options.add_argument("--group", default="quix-rows")
    options.add_argument("--seconds", type=float, default=10)
    arguments = options.parse_args()
    key = arguments.key.split(",")
    rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def apply(change: dict[str, Any] | None) -> None:
        if change is None or "op" not in change:
            # A tombstone, or a schema record in a stream's own topic.
            return
        before, after = change["before"], change["after"]
        if change["op"] == "t":
            rows.clear()
            return
        old = {}
        if before is not None:
            old = rows.pop(tuple(before[name] for name in key), {})
        if after is not None:
            place = tuple(after[name] for name in key)
            old = old or rows.get(place, {})
            # What the log does not carry stays as it was.
            kept = {name: old.get(name) for name in change.get("unchanged", [])}
            rows[place] = {**after, **kept}

    application = Application(
        broker_address=arguments.bootstrap,
        consumer_group=arguments.group,
        auto_offset_reset="earliest",
        auto_create_topics=False,
        consumer_extra_config={"isolation.level": "read_committed"},
        loglevel="WARNING",
    )
    changes = application.dataframe(
        application.topic(arguments.topic, key_deserializer="bytes", value_deserializer="json")
    )
    changes.update(apply)
    application.run(changes, timeout=arguments.seconds)
    for row in rows.values():
        print(json.dumps(row, ensure_ascii=False))


if __name__ == "__main__":
    main()
