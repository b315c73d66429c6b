"""The text of a committed position: what this release writes, and what former ones wrote, is read."""

import pytest

from bridge.model.chain import PositionText, Withheld, parse, position_text
from headrace.errors import CorruptInput, NeedsOperator
from headrace.position import Position

AT = Position(0x692010C0, 0x1A2B3C8, 2)
FORMER = "692010c0/0000000001a2b3c8/00000002 2026-11-01T10:00:00.000Z host/17/0a1b2c3d"


def test_a_text_is_read_as_it_was_written():
    result = parse(position_text("jakarta/bank", AT, "host/17/0a1b2c3d"))
    assert (result.position, result.source, result.bridge) == (AT, "jakarta/bank", "host/17/0a1b2c3d")
    assert parse(position_text("jakarta/bank", None, "headrace bridge move")).position is None


def test_the_text_of_a_former_release_is_read():
    assert parse(FORMER) == PositionText(AT, "2026-11-01T10:00:00.000Z", "", "host/17/0a1b2c3d")
    assert parse("- 2026-11-01T10:00:00.000Z headrace bridge move").bridge == "headrace bridge move"


@pytest.mark.parametrize(
    "text", ["", "2", "2 - now", "anything at all really", "2 x y z w", "9", "9 ", "1732627200 - a b c"]
)
def test_another_text_is_refused(text):
    with pytest.raises(CorruptInput):
        parse(text)


@pytest.mark.parametrize("offset", ["9" * 25, "9" * 5000, "1_000", "\u0663", " 3", "-1", "3.0", ""])
def test_an_offset_that_kafka_does_not_have_is_refused(offset):
    """Kafka's client raised at it, long after; and `int` takes other digits, too."""
    text = f"3 {AT} 2026-11-01T10:00:00.000Z jakarta/bank {AT} {{}} public.t={AT}@{{}} host/1/ab/i"
    assert parse(text.format(7, 3)).withheld.end == 7
    for given in ((offset, 3), (7, offset)):
        with pytest.raises(CorruptInput):
            parse(text.format(*given))


@pytest.mark.parametrize("at", ["now", "2026-11-01T10:00:00", "9999-99-99T00:00:00Z", "1762000000"])
def test_a_time_that_is_none_is_refused(at):
    """The doctor counts the hours since then."""
    with pytest.raises(CorruptInput):
        parse(f"2 {AT} {at} jakarta/bank host/1/ab/i")


@pytest.mark.parametrize(("text", "is_ours"), [("1732627200", False), ("2026 - now", False), ("999 - a b c", True)])
def test_digits_that_another_tool_committed_are_no_text_of_a_newer_release(text, is_ours):
    """The hint was to start a newer release, and there was none."""
    with pytest.raises(NeedsOperator if is_ours else CorruptInput):
        parse(text)


def test_the_order_of_partitions_goes_with_the_position_of_a_source_that_has_several():
    text = position_text("jakarta/bank", AT, "host/17/0a1b2c3d/b 1", partitions=(2, 0, 1))
    assert (parse(text).bridge, parse(text).order) == ("host/17/0a1b2c3d/b 1", (2, 0, 1))
    waiting = position_text("jakarta/bank", AT, "headrace bridge move", Withheld(7), (1, 0))
    assert parse(waiting)[3:] == ("headrace bridge move", Withheld(7), (1, 0))
    assert parse(position_text("jakarta/bank", AT, "host/17/0a1b2c3d/b", partitions=(4,))).order == ()
    assert parse(position_text("jakarta/bank", AT, "b", partitions=range(1000))).order == ()
