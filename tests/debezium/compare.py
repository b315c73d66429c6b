"""Two streams of one topic's records, ours and Debezium's, compared field by field.

A record is compared with the one at the same place in the other stream; a field is named by its path, as in `value.source.lsn` or
`key.id`. Times at which a program read or wrote something have to be there, of the same magnitude, and are not compared.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from tests.rules.waiting import eventually

ABSENT = "(absent)"
#: When a record was made.
_READ_AT = ("value.ts_ms", "value.ts_us", "value.ts_ns")


class Record(NamedTuple):
    """A record as it is in Kafka: JSON's values, and None for a tombstone."""

    key: Any
    value: Any
    headers: tuple[tuple[str, Any], ...]


def records(bootstrap: str, topic: str, count: int) -> list[Record]:
    """Return the records of a topic's only partition, as soon as there are so many; those that came within a minute else."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "compare",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
    )
    results: list[Record] = []

    def take() -> None:
        for message in consumer.consume(1000, timeout=0.2):
            assert not message.error(), message.error()
            headers = tuple((name, _header(text)) for name, text in message.headers() or ())
            results.append(Record(_parsed(message.key()), _parsed(message.value()), headers))

    try:
        # A partition that is assigned before it is there is not found for minutes.
        eventually(lambda: topic in consumer.list_topics(timeout=60).topics, 120, saying=f"{topic} is there")
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 60
        while len(results) < count and time.monotonic() < deadline:
            take()
        return results
    finally:
        consumer.close()


def differences(ours: Sequence[Record], theirs: Sequence[Record]) -> dict[str, tuple[Any, Any]]:
    """Return each path at which records differ, with the first two values that did; `records` if their number does."""
    results: dict[str, tuple[Any, Any]] = {}
    if len(ours) != len(theirs):
        results["records"] = ([_described(each) for each in ours], [_described(each) for each in theirs])
    for mine, other in zip(ours, theirs, strict=False):
        fields, others = dict(_fields(mine)), dict(_fields(other))
        for path in fields.keys() | others.keys():
            pair = fields.get(path, ABSENT), others.get(path, ABSENT)
            if not _equal(path, *pair):
                results.setdefault(path, pair)
    return dict(sorted(results.items()))


def by_transaction(found: Sequence[Record], identified: Callable[[str], str] = str) -> list[tuple[Any, ...]]:
    """Return what records of where transactions begin and end have of each, but for times and the order of tables."""
    return [
        (
            each.value["status"],
            identified(each.key["id"]),
            identified(each.value["id"]),
            each.value["event_count"],
            sorted(each.value["data_collections"] or (), key=itemgetter("data_collection")),
            sorted(each.value.keys() - {"source"}),
        )
        for each in found
    ]


def by_reason(found: dict[str, tuple[Any, Any]], intended: dict[str, str]) -> tuple[dict[str, Any], set[str]]:
    """Return the differences that nobody intended, and the intended ones that did not occur.

    A path in `intended` that ends with `*` stands for all that begin so.
    """
    occurred: dict[str, list[str]] = defaultdict(list)
    unintended = {}
    for path, pair in found.items():
        rule = next(
            (each for each in intended if path == each or (each.endswith("*") and path.startswith(each[:-1]))), None
        )
        if rule is None:
            unintended[path] = pair
            # Shown whole where the test fails.
            print(f"{path}: ours {pair[0]!r}, Debezium's {pair[1]!r}")
        else:
            occurred[rule].append(path)
    return unintended, intended.keys() - occurred.keys()


def _equal(path: str, mine: Any, other: Any) -> bool:
    if path in _READ_AT:
        return isinstance(mine, int) and isinstance(other, int) and len(str(mine)) == len(str(other))
    # 1 and 1.0, true and 1 are not the same in JSON.
    return json.dumps(mine) == json.dumps(other)


def _fields(record: Record) -> Iterator[tuple[str, Any]]:
    yield from _flat("key", record.key)
    yield from _flat("value", record.value)
    for name, value in record.headers:
        yield from _flat(f"headers.{name}", value)


def _flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(f"{path}.{name}", inner)
    else:
        yield path, value


def _parsed(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)


def _header(text: bytes | None) -> Any:
    """Return JSON's value where it is one: Connect writes structures as JSON and texts as they are."""
    try:
        return _parsed(text)
    except ValueError:
        return text.decode() if text is not None else None


def _described(record: Record) -> str:
    value = record.value or {}
    return f"{value.get('op', value.get('status', 'tombstone'))} {json.dumps(record.key)}"
