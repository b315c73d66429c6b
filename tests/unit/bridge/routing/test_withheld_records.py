"""What of a batch is withheld: a refused table's changes from the first on, with tombstones and headers, and nothing else."""

import json

import pytest
from msgspec.structs import replace

from bridge.model.chain import NOTHING, Withheld, WithheldTable
from bridge.model.route import SourceRoute, TableRouter
from bridge.routing.partitioner import TableRefused
from bridge.routing.registered_schemas import Ids
from bridge.routing.withheld_records import batch_of, divide
from headrace.batch import Batch, WrittenWith
from headrace.configuration.bridge import TableTopic
from headrace.errors import CorruptInput
from headrace.position import Position
from headrace.registry.client import Incompatible

TAIL = Position(1, 5, 0)
HEADS = {table: b"\0\0\0\0" + bytes([number]) for number, table in enumerate(("t", "u"), 1)}
WRITTEN = [
    WrittenWith(
        HEADS[table][4], "public", table, f'"{table} key"', json.dumps({"namespace": f"@prefix.public.{table}"})
    )
    for table in HEADS
]
TOPICS = {f"public.{table}": TableTopic(f"s.public.{table}", "delete") for table in "tu"}
ROUTE = SourceRoute("a/b", "s", (0,), TableRouter("s", TOPICS), "s", "", "s.withheld")


class Refusing:
    def __init__(self, *tables):
        self.tables = tables

    def ids(self, needed):
        if any(f".{table}" in needed.topic for table in self.tables):
            raise Incompatible(f"{needed.value_subject} is incompatible", hint="Allow it.")
        return Ids(7, 8)


def avro(table, key, value):
    head = HEADS[table]
    return head + key, None if value is None else head + value


def of_json(table, **more):
    source = {"version": "1", "name": "a/b", "ts_ms": 1, "schema": "public", "table": table}
    return json.dumps({"after": {"id": 1}, "source": source, **more}, separators=(",", ":")).encode()


def batch(*records, segments=None, headers=None, written=WRITTEN):
    keys, values = zip(*records, strict=True)
    segments = segments or [(10, 0, len(records))]
    return Batch(
        source="a/b", follows=TAIL, first=Position(1, *segments[0][:2]),
        last=Position(1, segments[-1][0], segments[-1][1] + segments[-1][2] - 1), segments=segments, keys=list(keys),
        values=list(values), headers=headers or {}, written=list(written),
    )  # fmt: skip


def found(divided):
    """Return the values by topic, and each withheld record's batch."""
    values = {share.topic: share.values for share in divided.shares if share.topic != "s.withheld"}
    parts = {
        key.decode(): batch_of(share.headers[number], value, "here")
        for share in divided.shares
        if share.topic == "s.withheld"
        for number, (key, value) in enumerate(zip(share.keys, share.values, strict=True))
    }
    return values, parts


def test_without_a_refusal_nothing_is_withheld():
    given = batch(avro("t", b"1", b"one"), avro("u", b"1", b"two"))
    divided = divide(given, 0, ROUTE, Refusing(), NOTHING, TAIL)
    assert (divided.withheld, divided.reasons) == (NOTHING, {})
    assert {share.topic for share in divided.shares} == {"s.public.t", "s.public.u"}


def test_a_refused_tables_changes_are_a_batch_of_their_own_and_the_others_go_on():
    mark = (None, b'{"copy":1}')
    given = batch(
        avro("t", b"1", b"one"), avro("u", b"2", b"two"), avro("t", b"1", None), (b"begin", b'{"status":"BEGIN"}'), mark,
        avro("t", b"3", b"three"), headers={0: [("h", b"1")], 1: [("h", b"2")]},
    )  # fmt: skip
    divided = divide(given, 0, ROUTE, Refusing("t"), Withheld(40), TAIL)
    assert divided.withheld == Withheld(40, {"public.t": WithheldTable(TAIL, 40)})
    assert divided.reasons == {"public.t": "s.public.t-value is incompatible"}
    values, parts = found(divided)
    assert values == {"s.public.u": [b"\0\0\0\0\x08two"], "s": [b'{"status":"BEGIN"}', mark[1]]}
    ((name, part),) = parts.items()
    assert name == "a/b public.t"
    assert (part.values, part.written, part.headers) == (
        [HEADS["t"] + b"one", None, HEADS["t"] + b"three"], WRITTEN[:1], {0: [("h", b"1")]}
    )  # fmt: skip
    assert [position.ordinal for position in part.positions()] == [0, 2, 5]
    assert part.follows == TAIL


def test_what_follows_is_withheld_whatever_the_registry_says_by_then():
    withheld = Withheld(40, {"public.t": WithheldTable(TAIL, 12)})
    divided = divide(batch(avro("t", b"1", b"one"), avro("u", b"1", b"two")), 0, ROUTE, Refusing(), withheld, TAIL)
    assert (divided.withheld, divided.reasons) == (withheld, {})
    values, parts = found(divided)
    assert (list(values), list(parts)) == (["s.public.u"], ["a/b public.t"])


def test_the_table_is_complete_up_to_the_record_ahead_of_its_first_withheld_one():
    given = batch(
        avro("u", b"1", b"one"), (None, of_json("t", tableChanges=[{}])), avro("t", b"1", b"two"),
        segments=[(10, 0, 1), (11, 3, 1), (11, 3, 1)],
    )  # fmt: skip
    divided = divide(given, 0, ROUTE, Refusing("t"), NOTHING, TAIL)
    assert divided.withheld.tables == {"public.t": WithheldTable(Position(1, 10, 0), 0)}
    divided = divide(given, 1, ROUTE, Refusing("t"), NOTHING, TAIL)
    assert divided.withheld.tables == {"public.t": WithheldTable(TAIL, 0)}


def test_repeats_are_not_withheld_again():
    divided = divide(batch(avro("t", b"1", b"one"), avro("t", b"2", b"two")), 1, ROUTE, Refusing("t"), NOTHING, TAIL)
    _, parts = found(divided)
    assert parts["a/b public.t"].values == [HEADS["t"] + b"two"]


def test_an_edge_that_writes_json_by_now_does_not_overtake_what_is_withheld():
    withheld = Withheld(40, {"public.t": WithheldTable(TAIL, 12)})
    schema = of_json("t", tableChanges=[{}])
    given = batch(
        (None, schema), (b'{"id":1}', of_json("t", op="c")), (b'{"id":1}', None), (b'{"id":1}', of_json("u", op="c")),
        segments=[(10, 0, 1), (10, 0, 1), (10, 1, 2)], written=[],
    )  # fmt: skip
    values, parts = found(divide(given, 0, ROUTE, Refusing(), withheld, TAIL))
    # its schema record is in the stream's own topic, ahead of what it describes
    assert values == {"s": [schema], "s.public.u": [of_json("u", op="c")]}
    assert parts["a/b public.t"].values == [of_json("t", op="c"), None]


def test_a_table_without_a_topic_of_its_own_has_the_source_wait():
    route = ROUTE._replace(tables=TableRouter("s", {"public.u": TableTopic("s.public.u", "delete")}))

    class RefusesAll:
        def ids(self, _needed):
            raise Incompatible("no", hint="")

    with pytest.raises(Incompatible):
        divide(batch(avro("t", b"1", b"one")), 0, route, RefusesAll(), NOTHING, TAIL)


def test_more_tables_than_a_committed_position_holds_have_the_source_wait():
    full = Withheld(40)
    while (more := full.put(str(len(full.tables)), WithheldTable(TAIL, 1))).fits:
        full = more
    with pytest.raises(TableRefused):
        divide(batch(avro("t", b"1", b"one")), 0, ROUTE, Refusing("t"), full, TAIL)


@pytest.mark.parametrize(
    "headers", [None, [], [("version", b"x"), ("count", b"1")], [("version", b"3"), ("count", b"2")]]
)
def test_what_no_bridge_wrote_is_named_by_its_place(headers):
    with pytest.raises(CorruptInput, match=r"s\.withheld\[0\], offset 3, holds no withheld record"):
        batch_of(headers, b"anything", "s.withheld[0], offset 3,")


def test_a_batchs_parts_are_whole_batches():
    given = batch(
        (b"k", b"delete"), (b"k", b"create"), (b"k", b"x"), (b"k", b"y"), segments=[(10, 0, 1), (10, 0, 2), (12, 0, 1)],
        headers={1: [("h", b"1")]}, written=[],
    )  # fmt: skip
    part = given.part([0, 1, 3])
    assert part.segments == [(10, 0, 1), (10, 0, 1), (12, 0, 1)]
    assert (part.first, part.last, part.follows) == (given.first, given.last, TAIL)
    assert part.headers == {1: [("h", b"1")]}
    assert replace(given.part(range(4)), figures=given.figures) == given
