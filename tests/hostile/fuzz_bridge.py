"""What comes to a bridge: batches, messages, records of Kafka's, and the texts of positions."""

import json
import random
import re
from collections.abc import Callable, Collection
from typing import Any

import msgspec
from proton import ProtonException

from bridge.deliveries.pending import Entry
from bridge.deliveries.pending import encode as encode_delivery
from bridge.deliveries.record import Record
from bridge.model.chain import parse as parse_position_text
from bridge.model.delivery import Accept, Reject, Release
from bridge.model.route import TablePatterns, TableRouter
from bridge.positions.last_record import position_of
from bridge.routing.registered_schemas import Ids, RegisteredSchemas, find_needed
from bridge.routing.source_names import SourceNames
from bridge.routing.withheld_records import batch_of
from bridge.whole_topics import DeadLetterIndex, schema_in
from headrace.amqp.links import decode as decode_message
from headrace.amqp.transport import Message
from headrace.batch import Batch, WrittenWith, decode, encode
from headrace.configuration.bridge import TableTopic
from headrace.position import Position
from headrace.receive.message import decode as decode_received
from headrace.schema import Column, TableSchema
from headrace.schemas import avro
from tests.hostile import bodies
from tests.hostile.spoiling import FaultError, expected, json_of, packed, plain, spoil, spoil_bytes
from tests.unit.bridge.kafka_double import BridgeParts, metadata

SOURCE, OTHER = "a/one", "a/two"
EPOCH = bodies.EPOCH
_SCHEMA = TableSchema(
    schema="public", table="t", key=["id"], columns=[Column(name="id", type_name="int4", position=1, optional=False)]
)


def _batch(chance: random.Random) -> tuple[dict[str, Any], list[Any]]:
    """Return properties and parts of a good batch."""
    count = chance.randint(1, 4)
    names = avro.schemas(_SCHEMA, "postgresql")
    written = [WrittenWith(1, "public", "t", names.key, names.value)] if chance.random() < 0.4 else []
    key, value = (bodies.AVRO_KEY, bodies.AVRO_VALUE) if written else (bodies.KEY, bodies.VALUE)
    # Above 64 bits a batch is of version 4.
    commit = 1 if chance.random() < 0.8 else 1 << 64 | 5
    batch = Batch(
        source=SOURCE,
        follows=Position.start(EPOCH),
        first=Position(EPOCH, commit, 0),
        last=Position(EPOCH, commit, count - 1),
        segments=[(commit, 0, count)],
        keys=[key] * count,
        values=[value] * count,
        figures={"state": "capturing", "captured_lag_seconds": 1.5, "commit_ms": 1_700_000_000_000},
        headers={0: [("content-type", b"x")]} if chance.random() < 0.3 else {},
        written=written,
    )
    properties, _ = encode(batch)
    number = commit.to_bytes(16, "big") if properties["version"] == 4 else commit
    body = [[(number, 0, count)], batch.keys, batch.values, batch.figures]
    if properties["version"] > 1:
        body += [batch.headers]
    if properties["version"] > 2:
        body += [[list(each) for each in written]]
    return properties, body


def batch_input(chance: random.Random) -> bytes:
    """Return a batch, spoiled in its properties, in its values or in its packed bytes, as one input."""
    properties, body = _batch(chance)
    where = chance.randrange(4)
    if where == 0:
        properties = spoil(properties, chance)
    raw = packed(spoil(body, chance) if where in {1, 2} else body)
    if where == 3:
        raw = spoil_bytes(raw, chance)
    return msgspec.msgpack.encode((plain(properties), bodies.packed(raw)))


class _Registry:
    def register(self, _subject: str, _schema: str) -> int:
        return 7


class Lanes:
    """A bridge's lanes over two sources; made again after each input that was taken, as its chain has moved."""

    def __init__(self) -> None:
        self.parts = parts_ = BridgeParts(SOURCE, OTHER)
        schemas = RegisteredSchemas(_Registry())
        names = avro.schemas(_SCHEMA, "postgresql")
        needed = find_needed("bank.public.t", WrittenWith(1, "public", "t", *names), "bank", "", of_one_table=True)
        schemas._settle(needed, Ids(3, 4), None)
        parts_.registry.schemas = schemas
        for state in parts_.registry.states.values():
            router = TableRouter(
                "bank",
                {"public.t": TableTopic("bank.public.t", "delete")},
                TablePatterns("bank", {}),
                "bank.transactions",
            )
            state.route = state.route._replace(tables=router, prefix="bank", withheld="bank.withheld")
        parts_.registry.assigned((SOURCE, OTHER), metadata())
        parts_.recover()
        for lane in parts_.lanes:
            lane.turn(0)
        parts_.kafka.transactions.clear()


_lanes: list[Lanes] = []


def feed_batch(data: bytes) -> None:
    """S1, S3: whatever a batch holds, it is settled, and what is written is in its source's own partitions and known topics."""
    properties, body = msgspec.msgpack.decode(data, strict=False)
    if not _lanes:
        _lanes.append(Lanes())
    parts_ = _lanes[0].parts
    session = parts_.session(SOURCE)
    if session is None:
        _lanes.clear()
        return feed_batch(data)
    route = parts_.registry.states[SOURCE].route
    parts_.deliverer.outcomes.clear()
    session.inbox.put(bodies.delivery(1, properties, body))
    parts_.lanes[0].turn(0)
    outcome = parts_.deliverer.outcomes.get(1)
    if not isinstance(outcome, Accept | Reject | Release):
        raise FaultError(f"outcome {outcome}")
    if isinstance(outcome, Reject) and not outcome.description.isprintable():
        raise FaultError("the answer is not printable")
    _check_written(parts_, {*route.topics, route.withheld}, route.partitions)
    if parts_.kafka.transactions or isinstance(outcome, Release) or session.closed or session.tail is not None:
        _lanes.clear()
    return None


def _check_written(parts_: BridgeParts, topics: set[str], partitions: Collection[int]) -> None:
    """Raise FaultError where something is written that the source may not write."""
    for shares, positions, _ in parts_.kafka.transactions:
        for share in shares:
            if share.partition not in partitions or share.topic not in topics:
                raise FaultError(f"a record goes to {share.topic}[{share.partition}]")
            for index, headers in (share.headers or {}).items():
                if not 0 <= index < len(share.values) or any(not name or "\0" in name for name, _ in headers):
                    raise FaultError("a header that Kafka does not take")
        for each in positions:
            parsed = parse_position_text(each.metadata)
            if parsed.source not in {SOURCE, OTHER} or len(each.metadata) > 4096:
                raise FaultError(f"a position of {parsed.source}")


def message_input(chance: random.Random) -> bytes:
    """Return an AMQP message, spoiled in its bytes, or in its properties."""
    properties, body = _batch(chance)
    message = Message(
        body=bodies.packed(msgspec.msgpack.encode(body)), inferred=True, durable=True, id="1", address="cdc/a/one",
        subject="batch", properties=properties, creation_time=1.0,
    )  # fmt: skip
    data: bytes = message.encode()
    if chance.random() < 0.5:
        return spoil_bytes(data, chance)
    spoiled = plain(spoil(properties, chance))
    message.properties = spoiled if isinstance(spoiled, dict) else {"version": spoiled}
    try:
        data = message.encode()
    except (OverflowError, ValueError, TypeError, ProtonException):
        # AMQP has no such property.
        return spoil_bytes(data, chance)
    return data


def feed_message(data: bytes) -> None:
    """S1: whatever an AMQP message holds, it has properties or none, and `decode` refuses it or takes it."""
    properties, encoding, body = decode_message(data)
    expected(lambda: decode(properties, encoding, body))
    received = decode_received(data)
    if received is not None and b"\n" in received.line():
        raise FaultError("more than one line")


def text_input(chance: random.Random) -> bytes:
    """Return the text of a committed position, spoiled in its bytes or in one of its parts."""
    at = str(Position(EPOCH, 1, 0))
    good = chance.choice(
        (
            f"2 {at} 2026-11-05T10:00:00.000Z a/one host/1/ab/i",
            f"3 {at} 2026-11-05T10:00:00.000Z a/one {at} 7 public.t={at}@3,public.u={at}@0 host/1/ab/i",
            f"{at} 2026-11-05T10:00:00.000Z host",
            f"2 {at} 2026-11-05T10:00:00.000Z a/one host/1/ab/i 2,0,1",
        )
    )
    if chance.random() < 0.5:
        return spoil_bytes(good.encode(), chance)
    pieces = re.split(r"([ =@,])", good)
    which = chance.randrange(len(pieces))
    pieces[which] = str(spoil(pieces[which], chance))
    return "".join(pieces).encode(errors="surrogatepass")


def feed_text(data: bytes) -> None:
    """A committed position is one, or it is refused."""
    result = expected(lambda: parse_position_text(data.decode(errors="surrogateescape")))
    if result is not None:
        offsets = [each.next for each in result.withheld.tables.values()] if result.withheld is not None else []
        if not all(0 <= each < 1 << 63 for each in (*offsets, *result.order)):
            raise FaultError("an offset or a partition that Kafka does not have")


def withheld_input(chance: random.Random) -> bytes:
    """Return a withheld record: headers and value."""
    properties, body = _batch(chance)
    headers = [[name, str(value).encode()] for name, value in properties.items()]
    headers = spoil(headers, chance) if chance.random() < 0.5 else headers
    raw = packed(spoil(body, chance) if chance.random() < 0.5 else body)
    return msgspec.msgpack.encode((plain(headers), bodies.packed(raw)))


def feed_withheld(data: bytes) -> None:
    """A withheld record is a batch, or it is refused."""
    headers, value = msgspec.msgpack.decode(data)
    pairs = _pairs(headers)
    expected(lambda: batch_of(pairs, value if isinstance(value, bytes) else None, "t[0]"))


def record_input(chance: random.Random) -> bytes:
    """Return a schema record or a record of a table, spoiled; and an Avro schema."""
    change = {
        "source": {"version": "1", "schema": "public", "table": "t"},
        "tableChanges": [_SCHEMA.change()],
    }
    source = {"version": "1", "name": SOURCE, "schema": "public", "table": "t", "position": str(Position(EPOCH, 1, 0))}
    letter = {
        "before": {"id": 1},
        "source": source,
        "op": "u",
        "unchanged": ["a"],
        "too_large": {"bytes": 1, "sha256": "0"},
    }
    value = chance.choice(
        (change, letter, json.loads(avro.schemas(_SCHEMA, "postgresql").value), json.loads(bodies.VALUE))
    )
    data = json.dumps(value, separators=(",", ":")).encode()
    if chance.random() < 0.5:
        return spoil_bytes(data, chance)
    return json_of(spoil(value, chance))


_router = TableRouter("bank", {"public.t": TableTopic("bank.public.t", "delete")})


def feed_record(data: bytes) -> None:
    """A schema record is one or is refused; a record names its table or is refused; two schemas are the same or are not."""
    expected(lambda: TableSchema.parse(data))
    topic = expected(lambda: _router.topic_of(b"k", data))
    if topic not in {None, "bank", "bank.public.t"}:
        raise FaultError(f"topic {topic}")
    expected(lambda: _router.table_of(data))
    _check_name(data)
    text = data.decode(errors="replace")
    if avro.same(text, avro.schemas(_SCHEMA, "postgresql").value) not in {True, False}:
        raise FaultError("neither the same nor another")
    avro.is_of_table(text, "@prefix.public.t", "Envelope")
    # What a bridge and its commands read of it later, in Kafka.
    position_of(data, SOURCE)
    expected(lambda: schema_in(data, "public.t"))
    letters = DeadLetterIndex()
    for key in (b'{"id":1}', data[:40]):
        letters.add(key, data, "t[0]@0")
    msgspec.json.encode(letters.rows())


_names = SourceNames(SOURCE)


def _check_name(data: bytes) -> None:
    """A record that is taken as the source's names it, whichever of two members of one name a consumer takes."""
    at = Position(EPOCH, 1, 0)
    batch = Batch(
        source=SOURCE,
        follows=Position.start(EPOCH),
        first=at,
        last=at,
        segments=[(1, 0, 1)],
        keys=[None],
        values=[data],
    )
    if expected(lambda: _names.check(batch, 0) or True):
        # What is no text is looked at by nobody where it is skipped.
        text = data.decode(errors="replace")
        for pairs in (dict, lambda each: dict(reversed(each))):
            if json.loads(text, object_pairs_hook=pairs, parse_int=str)["source"]["name"] != SOURCE:
                raise FaultError("a record of another source is taken")


def delivery_input(chance: random.Random) -> bytes:
    """Return a record of Kafka's that is to be delivered."""
    record = {
        "key": b"one/1",
        "value": b"{}",
        "headers": [["content-type", b"application/json"]],
        "timestamp": 1_700_000_000_000,
    }
    return msgspec.msgpack.encode(plain(spoil(record, chance)))


def feed_delivery(data: bytes) -> None:
    """What cannot be sent raises an error that the links' door takes: no more is asked of `encode`."""
    record = msgspec.msgpack.decode(data)
    if not isinstance(record, dict):
        return
    key, value, headers, timestamp = (record.get(name) for name in ("key", "value", "headers", "timestamp"))
    at = timestamp if isinstance(timestamp, int) and 0 <= timestamp < 2**63 else 0
    key, value = (each if isinstance(each, bytes) else None for each in (key, value))
    entry = Entry(Record("t", 0, 0, key, value, tuple(_pairs(headers)), at), "alerts/one")
    entry.sends = 1
    try:
        encoded = encode_delivery(entry, "alerts")
    except (OverflowError, UnicodeEncodeError):
        return
    decode_received(encoded)


def _pairs(headers: Any) -> list[tuple[str, bytes]]:
    """Return those headers that Kafka's client could give: a name and bytes."""
    pairs = [each for each in headers if isinstance(each, list) and len(each) == 2] if isinstance(headers, list) else []
    return [(name, value) for name, value in pairs if isinstance(name, str) and isinstance(value, bytes)]


TARGETS: dict[str, tuple[Callable[[random.Random], bytes], Callable[[bytes], None]]] = {
    "batch": (batch_input, feed_batch),
    "message": (message_input, feed_message),
    "position": (text_input, feed_text),
    "withheld": (withheld_input, feed_withheld),
    "record": (record_input, feed_record),
    "delivery": (delivery_input, feed_delivery),
}
