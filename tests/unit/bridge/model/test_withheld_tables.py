"""The text of what is withheld, in a committed position."""

import pytest

from bridge.model.chain import Withheld, WithheldTable, parse, position_text
from headrace.errors import CorruptInput
from headrace.position import Position

AT = Position(7, 90, 2)


@pytest.mark.parametrize("name", ["public.t", "a.b c", 'x."=,@%', "sché.ma", "- 1"])
def test_a_text_is_read_as_it_was_written(name):
    withheld = Withheld(
        40, {name: WithheldTable(Position(7, 50, 1), 12), "public.u": WithheldTable(Position(7, 60, 0), 40)}
    )
    text = position_text("a/b", AT, "headrace bridge move", withheld)
    result = parse(text)
    assert (result.position, result.source, result.bridge, result.withheld) == (
        AT,
        "a/b",
        "headrace bridge move",
        withheld,
    )
    assert text.isascii()
    # a reader of the format before finds the position up to which all is in its topic
    assert text.split(" ")[:2] == ["3", str(Position(7, 50, 1))]


def test_where_nothing_is_withheld_any_more_the_end_stays_and_where_nothing_ever_was_the_text_is_as_before():
    assert parse(position_text("a/b", AT, "x", Withheld(40))).withheld == Withheld(40)
    assert position_text("a/b", AT, "x", Withheld(40)).split(" ")[1] == str(AT)
    assert position_text("a/b", AT, "x").startswith("2 ")
    assert parse(position_text("a/b", AT, "x")).withheld is None


@pytest.mark.parametrize("part", ["- x", "4 x", "-1 -", "4 t=1@2", f"4 t={AT}@5", f"4 t={AT}@"])
def test_another_text_is_refused(part):
    with pytest.raises(CorruptInput):
        parse(f"3 {AT} now a/b {AT} {part} bridge")
