"""The batch on the wire: read back whole, refused when it is anything else, cut at any tail."""

import contextlib
import tracemalloc

import msgspec
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headrace.batch import CONTENT_ENCODING, Batch, WrittenWith, decode, encode
from headrace.errors import CorruptInput, NeedsOperator
from headrace.formats import BATCH
from headrace.position import Position

EPOCH = 1_700_000_000
#: A batch with headers, as the first release that has them writes it.
V2_BODY = (
    "28b52ffd2484d50300e4069593930a0001930a0002930b000295c0c4087b226964223a317d32337dc095c406736368656d61c4036f6e65"
    "c40374776fc4057468726565c082a8726561645f6c736e11a5726174696fcb3fe00081029192b15f5f646562657a69756d2e6f6c646b65"
    "79c4087b226964223a317d03008313000ab344c1035c5f9b8d"
)


def a_batch(**changes):
    """Two transactions, the first with a schema record ahead of its first change."""
    known = {
        "source": "jakarta/bank",
        "follows": Position.start(EPOCH),
        "first": Position(EPOCH, 10, 0),
        "last": Position(EPOCH, 11, 1),
        "segments": [(10, 0, 1), (10, 0, 2), (11, 0, 2)],
        "keys": [None, b'{"id":1}', b'{"id":2}', b'{"id":3}', None],
        "values": [b"schema", b"one", b"two", b"three", None],
        "figures": {"read_lsn": 17, "ratio": 0.5},
    }
    return Batch(**(known | changes))


def test_a_batch_is_read_back_whole():
    batch = a_batch()
    properties, body = encode(batch)
    assert decode(properties, CONTENT_ENCODING, body) == batch


def test_an_empty_batch_is_read_back():
    tail = Position(EPOCH, 11, 1)
    batch = a_batch(follows=tail, first=tail, last=tail, segments=[], keys=[], values=[])
    properties, body = encode(batch)
    assert decode(properties, CONTENT_ENCODING, body) == batch


def test_a_schema_record_has_the_position_of_the_change_that_it_goes_ahead_of():
    assert [str(position)[9:] for position in a_batch().positions()] == [
        "000000000000000a/00000000",
        "000000000000000a/00000000",
        "000000000000000a/00000001",
        "000000000000000b/00000000",
        "000000000000000b/00000001",
    ]


segments = st.lists(
    st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(1, 5)),
    min_size=1,
    max_size=6,
)


@given(segments, st.integers(0, 8), st.integers(0, 12), st.sampled_from([-1, 0, 1]))
def test_index_after_agrees_with_looking_at_every_position(runs, commit, ordinal, epoch_shift):
    # given runs put in order as an edge makes them
    ordered, before = [], (0, -1)
    for run in sorted(runs):
        if (run[0], run[1]) >= before:
            ordered.append(run)
            before = (run[0], run[1] + run[2] - 1)
    count = sum(run[2] for run in ordered)
    batch = a_batch(segments=ordered, keys=[None] * count, values=[b""] * count)
    tail = Position(EPOCH + epoch_shift, commit, ordinal)
    # then
    expected = sum(1 for position in batch.positions() if position <= tail)
    assert batch.index_after(tail) == expected


@pytest.mark.parametrize("name", ["source", "follows", "first", "last", "count"])
def test_a_message_without_our_properties_is_not_ours(name):
    properties, body = encode(a_batch())
    del properties[name]
    with pytest.raises(CorruptInput, match=name):
        decode(properties, CONTENT_ENCODING, body)


def test_a_message_without_properties_at_all_is_not_ours():
    with pytest.raises(CorruptInput, match="not a Headrace batch"):
        decode(None, None, b"hello")


def test_another_version_is_named():
    properties, body = encode(a_batch())
    with pytest.raises(NeedsOperator, match=r"version 5 .* reads versions 1 to 4"):
        decode(properties | {"version": BATCH.version + 1}, CONTENT_ENCODING, body)


def test_headers_make_a_batch_one_of_version_2_and_are_read_back():
    batch = a_batch(headers={1: [("__debezium.newkey", b'{"id":2}')], 3: [("a", b""), ("b", b"2")]})
    properties, body = encode(batch)
    assert properties["version"] == 2
    assert decode(properties, CONTENT_ENCODING, body) == batch
    # without them, the bytes are those of version 1, which older bridges read
    assert encode(a_batch())[0]["version"] == 1


def test_version_2_as_first_written_is_read():
    body = bytes.fromhex(V2_BODY)
    properties, _ = encode(a_batch())
    batch = decode(properties | {"version": 2}, CONTENT_ENCODING, body)
    assert batch == a_batch(headers={2: [("__debezium.oldkey", b'{"id":1}')]})


def test_a_header_of_no_record_is_refused():
    properties, body = encode(a_batch(headers={5: [("a", b"1")]}))
    with pytest.raises(CorruptInput, match="header"):
        decode(properties, CONTENT_ENCODING, body)


def test_what_records_in_avro_were_written_with_goes_with_them_and_only_such_batches_are_of_a_new_version():
    written = [WrittenWith(1, "public", "accounts", None, '{"type":"record"}')]
    properties, body = encode(replace(a_batch(), written=written))
    assert properties["version"] == 3
    assert decode(properties, CONTENT_ENCODING, body).written == written
    assert encode(a_batch())[0]["version"] == 1


def test_a_body_takes_no_more_memory_than_its_size():
    batch = a_batch(values=[b"schema", b"a" * 1_000_000, b"b" * 1_000_000, b"three", None])
    encode(batch)
    tracemalloc.start()
    try:
        _, body = encode(batch)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert taken < len(body) + 10_000


def test_commit_numbers_above_64_bits_are_read_back_and_only_such_batches_are_of_a_new_version():
    wide = 0x000443D8_0073D0DA_0005
    segments = [(2**64 - 1, 0, 1), (wide, 0, 1), (wide, 2**32 - 3, 3)]
    epoch = a_batch().last.epoch
    first, last = Position(epoch, 2**64 - 1, 0), Position(epoch, wide, 2**32 - 1)
    batch = replace(a_batch(), first=first, last=last, segments=segments)
    properties, body = encode(batch)
    assert properties["version"] == BATCH.version
    assert decode(properties, CONTENT_ENCODING, body) == batch
    with pytest.raises(CorruptInput):
        decode(properties | {"version": 3}, CONTENT_ENCODING, body)


def test_a_message_of_an_older_edge_is_read_and_what_a_newer_one_adds_is_passed_over():
    # given the bytes of before there was a checksum, as they may still lie in an edge's spool
    body = bytes.fromhex(
        "28b52ffd2064e5020034059493930a0001930a0002930b000295c0c4087b226964223a317d32337dc095c406736368656d61c4036f6e"
        "65c40374776fc4057468726565c082a8726561645f6c736e11a5726174696fcb3fe00000000000000200a0084b9431"
    )
    properties = {
        "version": 1,
        "source": "jakarta/bank",
        "follows": "6553f100/0000000000000000/00000000",
        "first": "6553f100/000000000000000a/00000000",
        "last": "6553f100/000000000000000b/00000001",
        "count": 5,
    }
    assert decode(properties, CONTENT_ENCODING, body) == a_batch()
    assert decode(properties | {"colour": "blue"}, CONTENT_ENCODING, body) == a_batch()
    assert encode(a_batch())[0] == properties


def test_a_bit_that_flipped_on_the_way_is_noticed_wherever_it_stood():
    properties, body = encode(a_batch())
    for place in range(8 * len(body)):
        spoilt = bytearray(body)
        spoilt[place // 8] ^= 1 << place % 8
        with contextlib.suppress(CorruptInput):
            # Not every bit of the frame's header says something.
            assert decode(properties, CONTENT_ENCODING, bytes(spoilt)) == a_batch()


def test_a_body_cut_at_any_length_is_refused():
    properties, body = encode(a_batch())
    for length in range(len(body)):
        with pytest.raises(CorruptInput):
            decode(properties, CONTENT_ENCODING, body[:length])


@given(st.binary(max_size=300))
def test_any_bytes_as_a_body_are_refused_with_a_typed_error(body):
    properties, _ = encode(a_batch())
    with pytest.raises(CorruptInput):
        decode(properties, CONTENT_ENCODING, body)


def test_a_body_that_unpacks_beyond_the_limit_is_refused_before_it_is_unpacked():
    properties, _ = encode(a_batch())
    bomb = zstandard.ZstdCompressor().compress(bytes(300 * 1024 * 1024))
    with pytest.raises(CorruptInput, match="the limit is"):
        decode(properties, CONTENT_ENCODING, bomb)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"keys": [None]}, "counts"),
        ({"segments": [(10, 0, 5)]}, "ends of a batch"),
        ({"segments": [(10, 0, 3), (10, 0, 0), (11, 0, 2)]}, "empty"),
        ({"segments": [(10, 0, 1), (9, 0, 2), (11, 0, 2)]}, "out of order"),
        ({"first": Position(EPOCH, 10, 1)}, "ends of a batch"),
        ({"follows": Position(EPOCH, 10, 0)}, "does not follow"),
        ({"follows": Position(EPOCH - 1, 1, 0)}, "does not follow"),
        ({"segments": [], "keys": [], "values": []}, "empty batch"),
        # S4: only what names its schemas is Avro; elsewhere bronze would wait for a schema, for all sources.
        ({"keys": [None, b"\0\0\0\0\1", None, None, None]}, "marked as Avro"),
        ({"values": [b"schema", None, b"two", b"three", b"\0"]}, "marked as Avro"),
    ],
)
def test_a_batch_that_contradicts_itself_is_refused(changes, problem):
    properties, body = encode(a_batch(**changes))
    with pytest.raises(CorruptInput, match=problem):
        decode(properties, CONTENT_ENCODING, body)


def test_a_body_of_other_types_is_refused():
    properties, _ = encode(a_batch())
    body = zstandard.ZstdCompressor().compress(msgspec.msgpack.encode(["a", 1, {}, []]))
    with pytest.raises(CorruptInput, match="not a batch"):
        decode(properties, CONTENT_ENCODING, body)


def test_another_encoding_is_refused():
    properties, body = encode(a_batch())
    with pytest.raises(CorruptInput, match="content-encoding"):
        decode(properties, "gzip", body)
