"""Sharing a batch among a source's partitions: a frozen hash, order by key, schema records everywhere."""

from itertools import chain, pairwise

from bridge.model.route import TableRouter
from bridge.routing.partitioner import share_out
from headrace.batch import Batch
from headrace.configuration.bridge import TableTopic
from headrace.position import Position
from tests.edge.source_log import Row, cut, log, of

SOURCE = "jakarta/bank"
ROWS = log(SOURCE, 200)
(BATCH,) = cut(SOURCE, ROWS, lambda: 200)


def test_one_partition_takes_all_in_order():
    (share,) = share_out(BATCH, 0, "t", [3])
    assert (share.partition, share.keys, share.values) == (3, BATCH.keys, BATCH.values)


def test_records_before_the_first_new_one_are_left_out():
    (share,) = share_out(BATCH, 150, "t", [3])
    assert share.values == BATCH.values[150:]
    assert sum(len(each.values) for each in share_out(BATCH, 150, "t", [0, 1])) == 50


def test_a_batch_without_records_goes_nowhere():
    # The first of an epoch, before the source's first change; the bridge has to take it, or it ends.
    before = Position(1_700_000_000, 5, 0)
    empty = Batch(source=SOURCE, follows=before, first=before, last=before, segments=[], keys=[], values=[])
    tables = TableRouter("t", {"public.t": TableTopic("t.public.t", "delete")})
    for partitions, router in (([0, 1], None), ([0], tables)):
        assert share_out(empty, 0, "t", partitions, router) == []


# B9
def test_the_hash_of_a_key_never_changes():
    rows = [
        Row(Position(1_700_000_000, 5, number), key, b"") for number, key in enumerate([b'{"id":1}', b'{"id":2}', b"x"])
    ]
    partitions = {
        key: share.partition
        for share in share_out(of(SOURCE, rows, rows[0].position), 0, "t", [4, 5, 6])
        for key in share.keys
    }
    assert partitions == {b'{"id":1}': 4, b'{"id":2}': 5, b"x": 4}


def test_a_schema_record_goes_everywhere_and_a_delete_with_its_tombstone_to_one_partition():
    commit, epoch = 5, 1_700_000_000
    batch = Batch(
        source=SOURCE,
        follows=Position(epoch, 4, 0),
        first=Position(epoch, commit, 0),
        last=Position(epoch, commit, 0),
        # The record that begins the transaction, the schema record, the delete, its tombstone.
        segments=[(commit, 0, 1)] * 4,
        keys=[b'{"id":"1:5"}', None, b'{"id":1}', b'{"id":1}'],
        values=[b"begin", b"schema", b"delete", None],
    )
    split = {share.partition: share.values for share in share_out(batch, 0, "t", [0, 1])}
    assert sorted(map(str, chain.from_iterable(split.values()))) == sorted(
        map(str, [b"begin", b"schema", b"schema", b"delete", None])
    )
    assert all(b"schema" in values for values in split.values())
    assert any(values[-2:] == [b"delete", None] for values in split.values())


def test_every_record_goes_to_one_partition_and_a_key_keeps_its_order():
    split = list(share_out(BATCH, 0, "t", [0, 1, 2]))
    assert sorted(value for share in split for value in share.values) == sorted(BATCH.values)
    order = {value: number for number, value in enumerate(BATCH.values)}
    for share in split:
        assert all(order[first] < order[two] for first, two in pairwise(share.values))
    assert all(share.values for share in split)


def test_a_schema_record_goes_to_every_partition_ahead_of_its_change():
    # given a schema record, which shares its position with the change after it, then a truncate without a key
    at = Position(1_700_000_000, 9, 0)
    rows = [
        Row(at, b"", b"schema"),
        Row(at, b'{"id":1}', b"one"),
        Row(at._replace(ordinal=1), b'{"id":2}', b"two"),
        Row(at._replace(ordinal=2), b"", b"truncate"),
    ]
    batch = of(SOURCE, rows, Position.start(at.epoch))
    batch.keys[0] = batch.keys[3] = None
    assert batch.segments == [(9, 0, 1), (9, 0, 3)]
    # then
    assert {share.partition: share.values for share in share_out(batch, 0, "t", [4, 5, 6])} == {
        4: [b"schema", b"one", b"truncate"],
        5: [b"schema", b"two"],
        6: [b"schema"],
    }


def test_headers_go_where_their_records_go():
    commit, epoch = 5, 1_700_000_000
    named = {index: [("__debezium.newkey", b"%d" % index)] for index in (1, 3)}
    batch = Batch(
        source=SOURCE,
        follows=Position(epoch, 4, 0),
        first=Position(epoch, commit, 0),
        last=Position(epoch, commit, 3),
        segments=[(commit, 0, 4)],
        keys=[b'{"id":%d}' % index for index in range(4)],
        values=[b"%d" % index for index in range(4)],
        headers=named,
    )
    (whole,) = share_out(batch, 0, "t", [0])
    (rest,) = share_out(batch, 2, "t", [0])
    assert (whole.headers, rest.headers) == (named, {1: named[3]})
    split = share_out(batch, 1, "t", [0, 1, 2])
    results = {share.values[at]: given for share in split for at, given in share.headers.items()}
    assert results == {b"1": named[1], b"3": named[3]}
    assert share_out(BATCH, 0, "t", [0])[0].headers is None
