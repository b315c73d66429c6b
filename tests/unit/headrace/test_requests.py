"""Requests and answers as bytes: what is read, what is refused, and how long answers are cut into parts."""

import json

import pytest

from headrace.errors import CorruptInput, NeedsOperator, NotConnected, Retryable
from headrace.requests import (
    LARGEST_ANSWER,
    LARGEST_REQUEST,
    PART_CHARACTERS,
    Answered,
    Collector,
    Content,
    decode_part,
    decode_request,
    encode,
    new_request,
    parts,
)

SOURCE = "jakarta/bank"


@pytest.fixture
def request_():
    return new_request(SOURCE, "status", "ann@hq", 30, {"a": 1})


def test_a_request_is_read_as_it_was_written(request_):
    assert decode_request(encode(request_)) == request_
    assert 29 < request_.seconds_left() <= 30


def test_the_bytes_of_version_1_are_read_for_good():
    data = (
        b'{"version":1,"id":"0123456789abcdef0123456789abcdef","source":"jakarta/bank","kind":"status","caller":"ann@hq",'
        b'"deadline":1800000000000,"arguments":{},"more":"of a later release"}'
    )
    result = decode_request(data)
    assert (result.kind, result.deadline, result.arguments) == ("status", 1_800_000_000_000, {})
    answer = (
        b'{"version":1,"id":"0123456789abcdef0123456789abcdef","source":"jakarta/bank","kind":"status","outcome":"done",'
        b'"by":"edge","part":0,"last":true,"content":"{\\"exit_code\\":0,\\"data\\":1,\\"message\\":\\"\\",\\"hint\\":\\"\\"}"}'
    )
    assert Collector(result).add(decode_part(answer)).data == 1


@pytest.mark.parametrize(
    "change",
    [
        {"id": "short"},
        {"id": 5},
        {"source": "no source"},
        {"kind": "STATUS;"},
        {"caller": "two\nlines"},
        {"caller": ""},
        {"deadline": -1},
        {"deadline": "soon"},
        {"arguments": [1]},
    ],
)
def test_what_is_no_request_is_refused_without_its_values(request_, change):
    data = json.dumps(json.loads(encode(request_)) | change).encode()
    with pytest.raises(CorruptInput) as found:
        decode_request(data)
    assert "two" not in found.value.message


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff\xfe", b"[" * 100_000, b"x" * (LARGEST_REQUEST + 1)])
def test_bytes_that_are_no_object_are_refused(data):
    with pytest.raises(CorruptInput):
        decode_request(data)
    with pytest.raises(CorruptInput):
        decode_part(data)


def test_a_request_of_a_newer_release_is_an_operators(request_):
    data = json.dumps(json.loads(encode(request_)) | {"version": 2, "kind": {"new": "form"}}).encode()
    with pytest.raises(NeedsOperator) as found:
        decode_request(data)
    assert "upgrade" in found.value.hint


def test_a_long_answer_comes_in_parts_that_may_come_in_any_order_and_twice(request_):
    data = ["é" * 10] * 10_000
    made = list(parts(request_, "done", Content(data=data)))
    assert len(made) > 5
    assert all(len(encode(part)) < 2 * PART_CHARACTERS + 1_000 for part in made)
    collector = Collector(request_)
    for part in [*reversed(made[1:]), made[-1]]:
        assert collector.add(decode_part(encode(part))) is None
    assert collector.add(made[0]).data == data


def test_an_answer_that_is_too_long_is_a_failure(request_):
    (part,) = parts(request_, "done", Content(data="x" * LARGEST_ANSWER))
    assert part.outcome == "failed"
    with pytest.raises(Answered) as found:
        Collector(request_).add(part)
    assert (found.value.exit_code, "too long" in found.value.message) == (3, True)


def test_answers_to_others_are_passed_over_and_two_answers_are_not_mixed(request_):
    collector = Collector(request_)
    other = new_request(SOURCE, "status", "bob", 30)
    (strange,) = parts(other, "done", Content(data="other"))
    (elsewhere,) = parts(request_, "done", Content(data="other"))
    assert collector.add(strange) is None
    assert collector.add(decode_part(encode(elsewhere).replace(b"jakarta/bank", b"jakarta/shop"))) is None
    first, *rest = parts(request_, "done", Content(data="x" * PART_CHARACTERS))
    assert collector.add(first) is None
    with pytest.raises(NotConnected):
        collector.add(next(parts(request_, "expired", Content(message="late"), by="bridge")))
    assert [collector.add(part) for part in rest][-1].data == "x" * PART_CHARACTERS


@pytest.mark.parametrize(
    ("outcome", "error"),
    [("refused", NeedsOperator), ("repeated", NeedsOperator), ("busy", Retryable), ("expired", NotConnected)],
)
def test_an_answer_says_who_must_act(request_, outcome, error):
    (part,) = parts(request_, outcome, Content(message="why", hint="what to do"))
    with pytest.raises(error) as found:
        Collector(request_).add(part)
    assert (found.value.message, found.value.hint) == ("jakarta/bank: why", "what to do")
