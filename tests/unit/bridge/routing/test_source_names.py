"""Each record of a batch names its source and it alone, whichever of two members of one name a consumer takes."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.routing import source_names
from bridge.routing.source_names import SourceNames
from edge.postgres.pgoutput import Decoder
from edge.records.avro_records import AvroRecords
from edge.records.batcher import Batcher
from edge.records.cloud_events import CloudEvents
from headrace.batch import Batch, WrittenWith, decode
from headrace.configuration.edge import Records
from headrace.errors import CorruptInput
from headrace.position import Position
from headrace.schema import Column, TableSchema
from headrace.schemas import avro
from headrace.schemas.avro_json.envelope import ValueReader
from tests.unit.edge.postgres import messages

OWN, OTHER = "jakarta/bank", "london/bank"
CHECK = SourceNames(OWN)
SCHEMA = TableSchema(
    schema="public", table="t", key=["id"], columns=[Column(name="id", type_name="int8", position=1, optional=False)]
)
WRITTEN = WrittenWith(1, "public", "t", *avro.schemas(SCHEMA, "postgresql"))


def batch(*values, written=(), headers=None, source=OWN):
    first, last = (Position(1, 10, ordinal) for ordinal in (0, len(values) - 1))
    return Batch(
        source=source, follows=Position.start(1), first=first, last=last, segments=[(10, 0, len(values))],
        keys=[b"{}"] * len(values), values=list(values), written=list(written), headers=headers or {},
    )  # fmt: skip


def is_taken(*values, **more):
    try:
        CHECK.check(batch(*values, **more), 0)
    except CorruptInput:
        return False
    return True


def of_an_edge(source=OWN, **records):
    """Yield batches of all kinds of records: schemas, changes, unchanged columns, tombstones, transactions, messages."""
    settings = Records(transactions=True, messages=["*"], **records)
    batcher = Batcher(
        source=source,
        tail=Position.start(1),
        avro=AvroRecords() if settings.format == "avro" else None,
        events=CloudEvents(source) if settings.cloudevents else None,
    )
    decoder = Decoder(
        source=source, database="shop", epoch=1, batcher=batcher, key_of=lambda _: ["id"], records=settings
    )
    columns = [messages.Column("id", messages.INT8, key=True), messages.Column("name"), messages.Column("source")]
    for message in (
        messages.begin(10),
        messages.relation(*columns, table="t", identity="f"),
        messages.insert(1, '"source":{"name":"x"}', "é\n\u0001"),
        messages.update((1, messages.UNCHANGED, "x"), old=None),
        messages.delete(old=(1, "a", "b")),
        messages.logical_message(b"content"),
        messages.commit(10, 15),
    ):
        decoder.feed(message, messages.NOW_MS)
    for sealed in [*batcher.take(), *filter(None, [batcher.seal()])]:
        yield decode(sealed.properties, "zstd", sealed.body)


FORMS = [
    {},
    {"envelope": "debezium"},
    {"cloudevents": True},
    {"format": "avro"},
    {"format": "avro", "envelope": "debezium", "cloudevents": True},
]


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_what_an_edge_writes_names_its_source(form):
    for each in of_an_edge(**form):
        assert len(each) > 5
        CHECK.check(each, 0)
        with pytest.raises(CorruptInput):
            SourceNames(OTHER).check(each, 0)


# JSON with members of every kind, as pairs, so that one may come twice; each member's name in several spellings.
_NAMES = st.sampled_from(["source", "name", "Source", "\u017fource", "NAME", "after", "position"])
_TEXTS = st.sampled_from([OWN, OTHER, "name", "source", '"name":'])


class Pairs(list):
    """The members of an object in order."""


_LEAVES = st.one_of(st.none(), st.integers(0, 9), _TEXTS)
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(st.tuples(_NAMES, inner), max_size=3).map(Pairs) | st.lists(inner, max_size=2),
    max_leaves=5,
)
_SOURCES = st.lists(st.tuples(_NAMES, _TREES) | st.tuples(st.just("name"), _TEXTS), max_size=4).map(Pairs)
_RECORDS = st.lists(st.tuples(st.just("source"), _SOURCES) | st.tuples(_NAMES, _TREES), max_size=4).map(Pairs)


def _spelled(draw, value):
    gap = draw(st.sampled_from(["", " ", "\n\t"]))
    if isinstance(value, Pairs):
        inner = ",".join(f"{_spelled(draw, name)}{gap}:{gap}{_spelled(draw, member)}" for name, member in value)
        return "{" + gap + inner + gap + "}"
    if isinstance(value, list):
        return "[" + ",".join(_spelled(draw, each) for each in value) + "]"
    if isinstance(value, str) and draw(st.booleans()):
        return '"' + "".join(f"\\u{ord(each):04x}" for each in value) + '"'
    return json.dumps(value)


@st.composite
def documents(draw):
    return _spelled(draw, draw(_RECORDS))


def readings(text):
    """Return all names that a consumer may read of a record, None where there is none, or a reader that ignores case differs."""
    members = json.loads(text, object_pairs_hook=Pairs)
    sources = [member for name, member in members if name.casefold() == "source"]
    values = {None for name, _ in members if name != "source" == name.casefold()}
    for source in sources or [None]:
        names = [
            member if isinstance(member, str) and given == "name" else None
            for given, member in (source if isinstance(source, Pairs) else [])
            if given.casefold() == "name"
        ]
        values |= set(names or [None])
    return values


@given(documents())
def test_a_record_in_json_is_taken_where_every_reading_of_it_names_the_source(text):
    assert is_taken(text.encode()) == (readings(text) == {OWN})


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"null",
        b"[]",
        b'{"source":{"name":"jakarta/bank"}',
        b'{"source":{"name":"jakarta/bank"}}{"source":{"name":"london/bank"}}',
        b'{"source":{"name":"jakarta/bank\xff"}}',
        b'{"source":{"name":"jakarta/bank"},"x":' + b"[" * 100_000,
    ],
)
def test_what_is_no_record_is_refused(value):
    assert not is_taken(value)


def test_records_that_are_in_kafka_are_not_looked_at_and_tombstones_name_nothing():
    value = json.dumps({"source": {"name": OWN}}).encode()
    CHECK.check(batch(b"{}", value, None), 1)
    assert not is_taken(value, b"{}")


def test_a_cloudevent_of_another_source_is_refused():
    value = json.dumps({"source": {"name": OWN}}).encode()
    own, other = ("ce_source", f"/headrace/{OWN}".encode()), ("ce_source", f"/headrace/{OTHER}".encode())
    assert is_taken(value, headers={0: [own, ("ce_id", b"1")]})
    assert not is_taken(value, headers={0: [own, other]})
    assert not is_taken(value, headers={0: [other]})


_CHANGES = st.builds(
    dict,
    op=st.sampled_from(["c", "u", "d", "", "x" * 63, "x" * 64]),
    ts_ms=st.none() | st.integers(-(2**63), 2**63 - 1),
    ts_us=st.none() | st.integers(0, 200),
    transaction=st.none()
    | st.builds(
        dict,
        id=st.text(max_size=5) | st.just("x" * 70),
        total_order=st.integers(0, 300),
        data_collection_order=st.none() | st.integers(1, 3),
    ),
    unchanged=st.none() | st.lists(st.text(max_size=3), max_size=3),
    too_large=st.none() | st.just({"bytes": 5, "sha256": "0f"}),
    source=st.builds(
        dict,
        version=st.text(max_size=3),
        connector=st.sampled_from(["postgresql", "x" * 100]),
        name=st.sampled_from([OWN, OTHER, ""]),
        ts_ms=st.just(1),
        db=st.just("shop"),
        position=st.just("1"),
    ),
)


def in_avro(change):
    from edge.records.avro_records import AvroTable, _Change  # noqa: PLC0415

    table = AvroTable(1, SCHEMA, "postgresql", avro.Schemas(WRITTEN.key, WRITTEN.value))
    return table.value(msgspec.convert(change, _Change))


@given(_CHANGES)
def test_a_record_in_avro_is_taken_where_it_names_the_source(change):
    assert is_taken(in_avro(change), written=[WRITTEN]) == (change["source"]["name"] == OWN)


@given(_CHANGES, st.data())
def test_a_record_in_avro_that_is_taken_has_that_name_for_a_reader_too(change, data):
    """With any byte of what is ahead of the name changed, left out or put in."""
    value = bytearray(in_avro(change))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(5, min(len(value) - 1, 60)))
        more = data.draw(st.binary(max_size=2))
        value[at : at + data.draw(st.integers(0, 2))] = more
    taken = is_taken(bytes(value), written=[WRITTEN])
    try:
        name = json.loads(ValueReader(WRITTEN.value).read(bytes(value)))["source"]["name"]
    except (ValueError, IndexError, KeyError, UnicodeError, TypeError):
        return
    assert taken == (name == OWN)


def test_a_record_in_avro_does_not_count_for_one_in_json():
    """Two members of the record in JSON were taken for one of each."""
    source = {"version": "1", "connector": "postgresql", "name": OWN, "ts_ms": 1, "db": "shop", "position": "1"}
    change = {"op": "c", "source": source}
    own = json.dumps({"source": {"name": OWN}, "after": {"SOURCE": 1}}).encode()
    both = json.dumps({"source": {"name": OWN}, "Source": {"name": OTHER}}).encode()
    assert is_taken(own, in_avro(change), written=[WRITTEN])
    assert not is_taken(both, in_avro(change), written=[WRITTEN])


@pytest.mark.parametrize("size", [63, 64, 200])
def test_a_long_name_in_avro_is_found(size):
    name = f"a/{'b' * (size - 2)}"
    change = {
        "op": "c",
        "source": {"version": "1", "connector": "mysql", "name": name, "ts_ms": 1, "db": "", "position": ""},
    }
    SourceNames(name).check(batch(in_avro(change), written=[WRITTEN], source=name), 0)


def _spoiled(change):
    made = json.loads(WRITTEN.value)
    change(made["fields"])
    return WRITTEN._replace(value=msgspec.json.encode(made).decode())


@pytest.mark.parametrize(
    "written",
    [
        _spoiled(lambda fields: fields.reverse()),
        _spoiled(lambda fields: fields[7]["type"]["fields"].reverse()),
        _spoiled(lambda fields: fields[7].update(name="sauce")),
        _spoiled(lambda fields: fields[0].update(type="bytes")),
        _spoiled(lambda fields: fields.clear()),
        WRITTEN._replace(value=WRITTEN.value.replace('"fields":', '"fields":[],"fields":', 1)),
        WRITTEN._replace(value="{}"),
        WRITTEN._replace(value="[" * 100_000),
        WRITTEN._replace(value='{"fields":7}'),
    ],
)
def test_a_schema_in_avro_with_the_name_at_another_place_is_refused(written):
    assert is_taken(b'{"source":{"name":"jakarta/bank"}}', written=[WRITTEN])
    assert not is_taken(b'{"source":{"name":"jakarta/bank"}}', written=[written])


def test_schemas_are_remembered_and_bounded(monkeypatch):
    monkeypatch.setattr(source_names, "_MOST_SCHEMAS", 2)
    check = SourceNames(OWN)
    for number in range(5):
        written = _spoiled(lambda fields, number=number: fields.append({"name": f"x{number}", "type": "long"}))
        check.check(batch(b'{"source":{"name":"jakarta/bank"}}', written=[written]), 0)
        assert len(check._schemas) <= 2
