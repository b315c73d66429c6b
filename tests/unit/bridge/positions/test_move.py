"""Commands about positions: `move` never over another source's, and read back; a foreign offset is its source's affair."""

import json
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from bridge import command, doctor
from bridge.command import read_status
from bridge.kafka import entries
from bridge.kafka.client import KafkaError, KafkaException
from bridge.kafka.entries import NOBODY
from bridge.model.chain import Withheld, WithheldTable, parse, position_text
from bridge.model.ports import Committed
from bridge.model.route import SourceRoute
from bridge.positions import survey, transfer
from bridge.positions.transfer import Export, SourcePosition, export_positions, import_positions
from headrace.errors import NeedsOperator
from headrace.position import Position

ONE, TWO = Position(7, 10, 0), Position(8, 20, 0)
DELETION = "stop the bridges, and run 'kafka-consumer-groups --delete-offsets --group g --topic bank:1'"


class Group:
    """What a group holds, and a file that gives its sources other partitions."""

    def __init__(self, monkeypatch, **partitions):
        self.held = {0: ("a/one", ONE), 1: ("a/two", TWO), 2: ("a/gone", TWO)}
        self.held = {("bank", each): (9, position_text(*self.held[each], "b")) for each in self.held}
        self.takes = lambda _place: True
        self.commits = 0
        #: Positions that a bridge commits for a/one before it ends, in partition 0: the group has a member until then.
        self.bridge = []
        #: Those that a bridge commits there, and ends, after the group was read.
        self.between = []
        monkeypatch.setattr("bridge.positions.survey.time.sleep", lambda _seconds: None)
        sources = {f"a/{name}": owned for name, owned in partitions.items()}
        self.file = SimpleNamespace(
            kafka=None,
            group="g",
            path="bridge.toml",
            streams={"bank": SimpleNamespace(sources=sources)},
            topic=lambda stream: stream,
            patterns=lambda _stream: {},
        )
        routes = {source: SourceRoute(source, "bank", owned) for source, owned in sources.items()}
        for module in (survey, doctor):
            monkeypatch.setattr(module, "routes", lambda _file: routes)
        monkeypatch.setattr(survey, "reading", self._reading)
        monkeypatch.setattr(entries, "partitions_of", lambda *_: list(self.held))
        monkeypatch.setattr(survey, "commit_offsets", self._commit)
        monkeypatch.setattr(survey, "read_former", lambda *_: None)

    def move(self, *sources):
        return survey.move(self.file, self.admin, sources)

    @property
    def admin(self):
        answer = SimpleNamespace(result=lambda: SimpleNamespace(offset=300))
        return SimpleNamespace(list_offsets=lambda asked, **_: dict.fromkeys(asked, answer))

    def holders(self):
        return {place[1]: (parse(text).source, parse(text).position) for place, (_, text) in self.held.items()}

    def committed(self, places, timeout=None):
        answers = []
        for each in places:
            offset, text = self.held.get((each.topic, each.partition), (-1001, None))
            answers.append(
                SimpleNamespace(topic=each.topic, partition=each.partition, offset=offset, metadata=text, error=None)
            )
        return answers

    @contextmanager
    def _reading(self, *_arguments, **_named):
        yield self
        if self.between:
            self.held["bank", 0] = (9, self.between.pop(0))

    def _commit(self, _connection, _group, offsets):
        if self.bridge:
            self.held["bank", 0] = (9, self.bridge.pop(0))
            raise KafkaException(KafkaError(KafkaError.UNKNOWN_MEMBER_ID))
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


def test_a_source_that_comes_from_a_group_of_a_former_release_takes_no_position_from_one_that_has_its_place_since(
    monkeypatch,
):
    """The other one's position was nobody's then, and was looked for in its last record."""
    group = Group(monkeypatch, one=(3,), two=(1,))
    del group.held["bank", 0]
    former = Committed(ONE, "", "", {("bank", 1): 9, ("bank", 4): 9})
    monkeypatch.setattr(survey, "read_former", lambda _kafka, route: former if route.source == "a/one" else None)
    group.move("a/one")
    assert group.holders() == {1: ("a/two", TWO), 2: ("a/gone", TWO), 3: ("a/one", ONE), 4: (NOBODY, None)}


@pytest.mark.parametrize("last", [None, ONE])
def test_a_source_of_which_bridges_have_committed_no_position_yet_is_moved(monkeypatch, last):
    """`run` refused it as its partitions were others', and `move`, to which it pointed, as it had no position: no way led out."""
    group = Group(monkeypatch, one=(1,), two=(3,))
    group.held["bank", 0] = (0, position_text("a/one", None, "b"))
    asked = []
    monkeypatch.setattr(survey, "read_last_record", lambda *given: asked.append(given[1:]) or last)
    assert {source: each.position for source, each in group.move("a/one", "a/two").items()} == {
        "a/one": last,
        "a/two": TWO,
    }
    assert asked == [("a/one", ["bank"], [0])]
    # one that has no records begins in its new partition: a bridge that was forgotten began in the former one, beside it
    assert group.holders() == {
        0: (NOBODY, None),
        1: ("a/one", last),
        2: ("a/gone", TWO),
        3: ("a/two", TWO),
    }


def test_what_a_bridge_commits_until_it_ends_is_read_again(monkeypatch):
    """The position that was read while it ran was committed over a newer one: records were written twice."""
    newer, newest = Position(7, 11, 0), Position(7, 12, 0)
    group = Group(monkeypatch, one=(3,))
    group.bridge = [position_text("a/one", each, "b") for each in (newer, newest)]
    assert group.move("a/one")["a/one"].position == newest
    assert (group.holders()[3], group.holders()[0], group.commits) == (("a/one", newest), (NOBODY, None), 1)
    # nor is a position imported over the one that a bridge has found meanwhile
    group = Group(monkeypatch, one=(0,))
    del group.held["bank", 0]
    group.bridge = [position_text("a/one", newer, "b")]
    with pytest.raises(NeedsOperator, match="other positions are committed in group g: a/one is at"):
        import_one(monkeypatch, group)
    assert group.holders()[0] == ("a/one", newer)
    # nor are tables given up that were withheld meanwhile
    group = Group(monkeypatch, two=(1,))
    withheld = Withheld(5, {"public.t": WithheldTable(ONE, 0)})
    group.bridge = [position_text("a/one", newer, "b", withheld)]
    with pytest.raises(NeedsOperator, match=r"withheld tables, .*public\.t"):
        survey.forget(group.file, None, "a/one")
    assert group.commits == 0


def test_what_a_bridge_commits_that_comes_and_goes_before_the_commit_is_read_again(monkeypatch):
    """Kafka refuses the commit only as long as the bridge is a member."""
    newer = Position(7, 11, 0)
    group = Group(monkeypatch, one=(3,))
    group.between = [position_text("a/one", newer, "b")]
    assert group.move("a/one")["a/one"].position == newer
    assert (group.holders()[3], group.commits) == (("a/one", newer), 1)
    group = Group(monkeypatch, one=(0,))
    del group.held["bank", 0]
    group.between = [position_text("a/one", newer, "b")]
    with pytest.raises(NeedsOperator, match="other positions are committed in group g: a/one is at"):
        import_one(monkeypatch, group)
    group = Group(monkeypatch, two=(1,))
    group.between = [position_text("a/one", newer, "b", Withheld(5, {"public.t": WithheldTable(ONE, 0)}))]
    with pytest.raises(NeedsOperator, match=r"withheld tables, .*public\.t"):
        survey.forget(group.file, None, "a/one")
    assert group.commits == 0


def import_one(monkeypatch, group):
    """Import the position of a/one, without a look at records."""
    monkeypatch.setattr(transfer, "routes", survey.routes)
    monkeypatch.setattr(transfer, "_check", lambda *_, **_named: None)
    return import_positions(group.file, group.admin, Export(1, "g", [SourcePosition("a/one", str(ONE))]))


def test_partitions_in_another_order_are_no_move(monkeypatch):
    """Keys are shared out by the order: their next changes went to another partition than those before."""
    text = position_text("a/one", ONE, "b", partitions=(0, 1))

    def held_in(partitions):
        group = Group(monkeypatch, one=partitions)
        group.held = {("bank", each): (9, text) for each in (0, 1)}
        return group

    group = held_in((1, 0))
    with pytest.raises(NeedsOperator, match=r"order \[0, 1\] until now, .* has \[1, 0\]") as raised:
        group.move("a/one")
    assert ("Put the former order back." in raised.value.hint, group.commits) == (True, 0)
    # Others, and the same as before, are.
    for partitions in ((1, 0, 3), (0, 1)):
        assert held_in(partitions).move("a/one")["a/one"].position == ONE


def test_bridges_that_do_not_end_keep_a_source_where_it_is(monkeypatch):
    monkeypatch.setattr(survey, "STOPPING_SECONDS", 0.0)
    group = Group(monkeypatch, one=(3,))
    group.bridge = [position_text("a/one", ONE, "b")] * 100
    with pytest.raises(NeedsOperator, match="bridges of the group g are running"):
        group.move("a/one")
    assert (group.commits, group.holders()[0]) == (0, ("a/one", ONE))


def test_what_kafka_did_not_take_is_named(monkeypatch):
    """K4: a commit can be refused for some of its partitions alone."""
    group = Group(monkeypatch, one=(3,), two=(1,))
    group.takes = lambda place: place != ("bank", 3)
    with pytest.raises(NeedsOperator, match=r"does not hold what was committed for bank\[3\] of group g"):
        group.move("a/one")
    # K6: nor is a position said to be imported
    group = Group(monkeypatch, one=(0,))
    del group.held["bank", 0]
    group.takes = lambda _place: False
    with pytest.raises(NeedsOperator, match=r"does not hold what was committed for bank\[0\] of group g"):
        import_one(monkeypatch, group)


def test_one_foreign_offset_is_shown_as_the_error_of_its_source_alone(monkeypatch):
    """It failed `positions`, `status`, `doctor` and `export` for all sources."""
    group = Group(monkeypatch, one=(0,), two=(1,))
    group.held["bank", 1] = (9, "")
    first, two = survey.survey(group.file)
    assert (first["position"], first["error"]) == (str(ONE), None)
    assert (two["position"], two["offsets"]) == (None, [])
    assert "did not write: bank[1]" in two["error"]
    assert "--topic bank:1'" in two["error"]
    assert [each.reason for each in read_status(group.file)] == ["", two["error"]]
    monkeypatch.setattr(command, "load", lambda *_: group.file)
    shown = CliRunner().invoke(command.bridge, ["positions", "--config", __file__])
    assert (shown.exit_code, two["error"] in shown.output) == (0, True)
    printed = CliRunner().invoke(command.bridge, ["export", "--config", __file__])
    assert [each["source"] for each in json.loads(printed.stdout)["sources"]] == ["a/one"]
    assert (printed.exit_code, printed.stderr.startswith("source a/two is left out: ")) == (3, True)
    export, errors = export_positions(group.file)
    assert ([each.source for each in export.sources], errors.keys()) == (["a/one"], {"a/two"})
    levels = {each.text.partition(":")[0]: each.level for each in doctor.positions(SimpleNamespace(file=group.file))}
    assert levels["a/two"] == "wrong"
    assert levels["a/one"] != "wrong"


def test_a_foreign_offset_keeps_those_sources_alone_from_being_moved_that_it_concerns(monkeypatch):
    group = Group(monkeypatch, one=(3,), two=(4,), fresh=(1,))
    group.held["bank", 1] = (9, "")
    assert group.move("a/one").keys() == {"a/one"}
    # Its position may have been there.
    with pytest.raises(NeedsOperator, match=r"did not write: bank\[1\]"):
        group.move("a/two")
    # So may the one of a source that does not leave it.
    group = Group(monkeypatch, one=(1,), two=(4,))
    group.held["bank", 1] = (9, "")
    with pytest.raises(NeedsOperator, match=r"did not write: bank\[1\]"):
        group.move("a/one")
    assert group.commits == 0


def test_a_foreign_offset_keeps_a_source_from_being_forgotten_whose_position_it_may_have_been(monkeypatch):
    group = Group(monkeypatch, one=(0,))
    group.held["bank", 1] = (9, "")
    survey.forget(group.file, None, "a/gone")
    with pytest.raises(NeedsOperator, match=r"no position of a/two, unless .* did not write: bank\[1\]") as raised:
        survey.forget(group.file, None, "a/two")
    assert DELETION in raised.value.hint
    # Of a source of several partitions the others are forgotten: whose that one was is not known.
    group.held |= {("bank", 1): (9, position_text("a/two", TWO, "b", partitions=(1, 2))), ("bank", 2): (9, "")}
    survey.forget(group.file, None, "a/two")
    assert group.held.pop(("bank", 2)) == (9, "")
    assert group.holders() == {0: ("a/one", ONE), 1: (NOBODY, None)}


def test_a_partition_is_not_given_back_to_a_source_that_lost_it(monkeypatch):
    """The doctor said ok, and the export left its present owner out with exit code 0."""
    group = Group(monkeypatch, one=(0,))
    group.held = {("bank", 0): (9, ""), ("bank", 1): (9, position_text("a/gone", TWO, "b", partitions=(0, 1)))}
    export, errors = export_positions(group.file)
    assert ([each.source for each in export.sources], errors.keys()) == ([], {"a/one"})
    assert [each.level for each in doctor.positions(SimpleNamespace(file=group.file))] == ["wrong"]
    survey.forget(group.file, None, "a/gone")
    assert export_positions(group.file)[1].keys() == {"a/one"}


def test_a_foreign_offset_keeps_those_sources_alone_from_being_imported_that_it_concerns(monkeypatch):
    group = Group(monkeypatch, one=(0,), two=(1,))
    monkeypatch.setattr("bridge.positions.transfer.routes", survey.routes)
    group.held["bank", 1] = (9, "")
    group.file.patterns = lambda _stream: None
    monkeypatch.setattr("bridge.positions.transfer.reading", survey.reading)
    export = Export(1, "g", [SourcePosition("a/one", str(ONE)), SourcePosition("a/two", str(TWO))])
    done = import_positions(group.file, None, export, only=["a/one"])
    assert done == [("a/one", f"is at {ONE} already")]
    with pytest.raises(NeedsOperator, match=r"did not write: bank\[1\]"):
        import_positions(group.file, None, export)


def test_a_foreign_offset_in_a_partition_of_no_source_is_named_with_the_way_out(monkeypatch):
    """It kept sources without a position from being served and imported, and no hint led to its removal."""
    group = Group(monkeypatch, one=(0,), fresh=(3,))
    group.held["bank", 1] = (9, "")
    monkeypatch.setattr("bridge.positions.transfer.routes", survey.routes)
    export = Export(1, "g", [SourcePosition("a/fresh", str(ONE))])
    with pytest.raises(NeedsOperator, match=r"did not write: bank\[1\]") as raised:
        import_positions(group.file, None, export)
    assert DELETION in raised.value.hint
    monkeypatch.setattr(doctor, "reading", survey.reading)
    monkeypatch.setattr(doctor, "look_at_group", lambda *_: ())
    (finding,) = [each for each in doctor.group(SimpleNamespace(file=group.file, client=None)) if each.level == "wrong"]
    assert DELETION in finding.fix
    assert DELETION in doctor_of(group, "a/fresh").fix
    # as they say
    del group.held["bank", 1]
    assert doctor_of(group, "a/fresh").level == "ok"


def test_a_position_that_another_partition_still_holds_is_kept(monkeypatch):
    """The hint was to delete the offsets of all partitions: where records had expired, the source began from nothing."""
    group = Group(monkeypatch, one=(0, 1))
    del group.held["bank", 2]
    group.held["bank", 1] = (9, "")
    with pytest.raises(NeedsOperator) as raised:
        group.move("a/one")
    assert "--delete-offsets --group g --topic bank:1'; then 'headrace bridge move a/one'" in raised.value.hint
    # as it says
    del group.held["bank", 1]
    group.move("a/one")
    assert group.holders() == {0: ("a/one", ONE), 1: ("a/one", ONE)}
    assert doctor_of(group, "a/one").level != "wrong"


def doctor_of(group, source):
    return next(each for each in doctor.positions(SimpleNamespace(file=group.file)) if each.text.startswith(source))
