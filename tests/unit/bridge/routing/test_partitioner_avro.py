"""Records in Avro get the registry's ids, and go where those in JSON go."""

import json

import pytest

from bridge.model.route import SourceRoute, TableRouter
from bridge.routing.partitioner import share_out_avro
from bridge.routing.registered_schemas import Ids
from headrace.batch import Batch, WrittenWith
from headrace.configuration.bridge import TableTopic
from headrace.errors import CorruptInput
from headrace.position import Position
from headrace.schema import Column, TableSchema
from headrace.schemas import avro

SCHEMA = TableSchema(
    schema="public", table="t", key=["id"], columns=[Column(name="id", type_name="int8", position=1, optional=False)]
)
WRITTEN = WrittenWith(7, "public", "t", *avro.schemas(SCHEMA, "postgresql"))
HEAD = b"\0\0\0\0\7"


class Known:
    """Gives ids, and notes what they are wanted for."""

    def __init__(self) -> None:
        self.wanted = []

    def ids(self, needed):
        self.wanted.append(needed)
        return Ids(256, 1 << 24)


def batch(*records: tuple[bytes | None, bytes | None], written=(WRITTEN,)) -> Batch:
    count = len(records)
    keys, values = zip(*records, strict=True)
    first, last = (Position(1, 10, ordinal) for ordinal in (0, count - 1))
    return Batch(
        source="a/b", follows=Position.start(1), first=first, last=last, segments=[(10, 0, count)],
        keys=list(keys), values=list(values), written=list(written),
    )  # fmt: skip


def route(partitions=(0,), **tables: str) -> SourceRoute:
    named = {f"public.{table}": TableTopic(f"s.public.{table}", cleanup) for table, cleanup in tables.items()}
    return SourceRoute("a/b", "s", partitions, TableRouter("s", named) if tables else None, "s", "BACKWARD")


def test_the_ids_take_the_place_of_the_batchs_number_in_key_value_and_tombstone():
    (share,) = share_out_avro(batch((HEAD + b"k", HEAD + b"v"), (HEAD + b"k", None)), 0, route(t="delete"), Known())
    assert share.topic == "s.public.t"
    assert share.keys == [b"\0\0\0\1\0k"] * 2
    assert share.values == [b"\0\1\0\0\0v", None]


def test_a_tables_own_topic_names_the_subjects_and_a_topic_of_many_tables_is_followed_by_the_records_name():
    known = Known()
    share_out_avro(batch((HEAD + b"k", HEAD + b"v")), 0, route(t="delete"), known)
    share_out_avro(batch((HEAD + b"k", HEAD + b"v")), 0, route(), known)
    own, shared = known.wanted
    assert (own.key_subject, own.value_subject) == ("s.public.t-key", "s.public.t-value")
    assert (shared.key_subject, shared.value_subject) == ("s-s.public.t.Key", "s-s.public.t.Envelope")
    assert (own.rule, json.loads(own.schemas.value)["namespace"]) == ("BACKWARD", "s.public.t")


def test_a_record_without_a_key_of_a_compacted_topic_goes_to_the_streams_own():
    (share,) = share_out_avro(batch((None, HEAD + b"v")), 0, route(t="compact"), Known())
    assert (share.topic, share.keys) == ("s", [None])


def test_a_key_keeps_its_partition_whatever_its_id_is():
    results = {}
    for number in (7, 8):
        head = b"\0\0\0\0" + bytes([number])
        records = [(head + bytes([key]), head + b"v") for key in range(50)]
        for share in share_out_avro(
            batch(*records, written=[WRITTEN._replace(number=number)]), 0, route((0, 1, 2)), Known()
        ):
            for key in share.keys:
                assert results.setdefault(key, share.partition) == share.partition
    assert len(set(results.values())) == 3


def test_what_is_json_goes_to_the_streams_own_topic():
    records = [(None, b'{"source":{}}'), (b'{"id":"1"}', b'{"status":"END"}'), (HEAD + b"k", HEAD + b"v")]
    shares = {share.topic: share for share in share_out_avro(batch(*records), 0, route(t="delete"), Known())}
    assert shares["s"].values == [value for _, value in records[:2]]
    assert shares["s"].keys == [key for key, _ in records[:2]]


def test_where_transactions_begin_and_end_goes_to_the_topic_that_they_have():
    begin, message = (b'{"id":"1"}', b'{"status":"BEGIN"}'), (b'{"prefix":"a"}', b'{"message":{}}')
    router = TableRouter("s", {"public.t": TableTopic("s.public.t", "delete")}, transactions="s.transaction")
    given = batch(begin, (HEAD + b"k", HEAD + b"v"), message)
    values = {share.topic: share.values for share in share_out_avro(given, 0, route()._replace(tables=router), Known())}
    assert values["s.transaction"] == [begin[1]]
    assert values["s"] == [message[1]]


def test_what_names_no_schema_of_the_batch_is_corrupt():
    with pytest.raises(CorruptInput, match="what it was written with"):
        share_out_avro(batch((HEAD + b"k", b"\0\0\0\0\1v")), 0, route(), Known())
