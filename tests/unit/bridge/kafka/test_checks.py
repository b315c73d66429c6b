"""Whether a group of bridges is one environment's alone (O11)."""

from types import SimpleNamespace

from bridge.kafka.checks import look_at_group, look_at_holders
from bridge.model.chain import PositionText


class Admin:
    """A cluster whose group has a member for each set of topics."""

    def __init__(self, *members):
        self.members = [
            SimpleNamespace(
                assignment=None
                if topics is None
                else SimpleNamespace(topic_partitions=[SimpleNamespace(topic=topic) for topic in topics])
            )
            for topics in members
        ]

    def describe_consumer_groups(self, groups, request_timeout):
        return {group: SimpleNamespace(result=lambda: SimpleNamespace(members=self.members)) for group in groups}


def test_a_group_with_bridges_of_other_topics_is_wrong_o11():
    (finding,) = look_at_group(Admin(["bank"], None, ["bank", "sales", "a", "b", "c"]), "headrace.bridges", {"bank"})
    assert finding.level == "wrong"
    assert "bridges of other topics: a, b, c, …." in finding.text
    assert "[kafka] prefix" in finding.fix


def test_a_group_of_this_files_topics_is_right():
    for members in ([], [["bank"], ["bank"]], [None]):
        (finding,) = look_at_group(Admin(*members), "headrace.bridges", {"bank"})
        assert (finding.level, f": {len(members)} bridges" in finding.text) == ("ok", True)


def test_positions_of_sources_that_the_file_does_not_name_are_shown_o11():
    def entry(source):
        return 5, PositionText(None, "", source, "")

    entries = {
        ("bank", 0): entry("a/one"),
        ("bank", 1): entry("-"),
        ("bank", 2): entry("b/two"),
        ("bank", 3): entry(""),
    }
    (finding,) = look_at_holders("headrace.bridges", entries, ["a/one"])
    assert finding.level == "warning"
    assert finding.text.endswith("does not name: b/two")
    assert "bridge forget" in finding.fix
    assert list(look_at_holders("headrace.bridges", entries, ["a/one", "b/two"])) == []
