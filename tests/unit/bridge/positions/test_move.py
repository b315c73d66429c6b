"""`headrace bridge move`: several sources at once, never over another one's position, and looked at afterwards."""

from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from bridge.kafka.entries import NOBODY
from bridge.model.position_text import parse, position_text
from bridge.model.route import SourceRoute
from bridge.positions import survey
from headrace.errors import NeedsOperator
from headrace.position import Position

ONE, TWO = Position(7, 10, 0), Position(8, 20, 0)


class Group:
    """What a group holds, and a file that gives its sources other partitions."""

    def __init__(self, monkeypatch, **partitions):
        self.held = {0: ("a/one", ONE), 1: ("a/two", TWO), 2: ("a/gone", TWO)}
        self.held = {("bank", each): (9, position_text(*self.held[each], "b")) for each in self.held}
        self.takes = lambda _place: True
        self.commits = 0
        routes = {f"a/{name}": SourceRoute(f"a/{name}", "bank", owned) for name, owned in partitions.items()}
        monkeypatch.setattr(survey, "routes", lambda _file: routes)
        monkeypatch.setattr(survey, "reading", self._reading)
        monkeypatch.setattr(survey, "read_topics", lambda *_: self._entries())
        monkeypatch.setattr(survey, "read_entries", lambda *_: self._entries())
        monkeypatch.setattr(survey, "commit_offsets", self._commit)
        monkeypatch.setattr(survey, "read_former", lambda *_: None)

    def move(self, *sources):
        file = SimpleNamespace(kafka=None, group="g")
        admin = SimpleNamespace(
            list_offsets=lambda asked, **_: {
                place: SimpleNamespace(result=lambda: SimpleNamespace(offset=300)) for place in asked
            }
        )
        return survey.move(file, admin, sources)

    def holders(self):
        return {place[1]: (parse(text).source, parse(text).position) for place, (_, text) in self.held.items()}

    @contextmanager
    def _reading(self, *_arguments, **_named):
        yield None

    def _entries(self):
        return {place: (offset, parse(text)) for place, (offset, text) in self.held.items()}

    def _commit(self, _connection, _group, offsets):
        self.commits += 1
        places = {(each.topic, each.partition): (each.offset, each.metadata) for each in offsets}
        self.held |= {place: entry for place, entry in places.items() if self.takes(place)}


def test_sources_that_swap_their_partitions_are_moved_together(monkeypatch):
    """K4: whichever went first took the other's only position."""
    group = Group(monkeypatch, one=(1,), two=(0,))
    before = group.holders()
    for source in ("a/one", "a/two"):
        with pytest.raises(NeedsOperator, match=r"bank\[.\] is a/\w+'s by .* and holds the position of a/\w+"):
            group.move(source)
    assert (group.holders(), group.commits) == (before, 0)
    assert {source: each.position for source, each in group.move("a/one", "a/two").items()} == {
        "a/one": ONE,
        "a/two": TWO,
    }
    assert (group.holders(), group.commits) == (before | {0: ("a/two", TWO), 1: ("a/one", ONE)}, 1)


def test_a_position_of_a_source_that_the_file_does_not_have_is_not_taken_either(monkeypatch):
    """K4: it may be another bridge's file that has it."""
    group = Group(monkeypatch, one=(2,), two=(1,))
    with pytest.raises(NeedsOperator) as raised:
        group.move("a/one")
    assert "'headrace bridge forget a/gone' first" in raised.value.hint
    assert group.commits == 0


def test_a_source_may_take_partitions_from_another_one_that_grows_elsewhere(monkeypatch):
    group = Group(monkeypatch, one=(0, 1), two=(3, 4))
    group.move("a/two", "a/one")
    assert group.holders() == {
        0: ("a/one", ONE),
        1: ("a/one", ONE),
        2: ("a/gone", TWO),
        3: ("a/two", TWO),
        4: ("a/two", TWO),
    }
    # and what is left is nobody's
    back = Group(monkeypatch, one=(5,), two=(1,))
    back.move("a/one")
    assert back.holders()[0] == (NOBODY, None)


def test_what_kafka_did_not_take_is_named(monkeypatch):
    """K4: a commit can be refused for some of its partitions alone."""
    group = Group(monkeypatch, one=(3,), two=(1,))
    group.takes = lambda place: place != ("bank", 3)
    with pytest.raises(NeedsOperator, match=r"does not hold what was committed for bank\[3\] of group g"):
        group.move("a/one")
