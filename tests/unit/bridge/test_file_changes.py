"""What a running bridge takes over of a changed file, and what it refuses by name."""

from types import SimpleNamespace

import pytest

from bridge.kafka.client import KafkaError, KafkaException
from bridge.kafka.topics import RecordLimits
from bridge.reloader import Reloader, compare
from headrace.configuration.bridge import BridgeFile
from headrace.configuration.load import load
from headrace.errors import NeedsOperator

FILE = """
[kafka]
bootstrap = "k:9092"
lanes = 2
security_protocol = "SASL_SSL"
user = "bridge"
password = "env:ONE"

[interconnect]
listen = "0.0.0.0:5671"
certificate = "a.crt"
key = "a.key"
authority = "ca.crt"
identities = { "edge-3" = ["jakarta/bank"] }

[streams.bank]
sources = { "jakarta/bank" = [0], "london/bank" = [1] }

[streams.sales]
sources = { "tokyo/sales" = [0, 1] }
"""


@pytest.fixture
def changed(tmp_path):
    path = tmp_path / "bridge.toml"

    def compared(*replaced):
        path.write_text(FILE)
        old = load(path, BridgeFile)
        text = FILE
        for before, after in replaced:
            assert before in text
            text = text.replace(before, after)
        path.write_text(text)
        return compare(old, load(path, BridgeFile))

    return compared


def test_sources_and_identities_are_taken_over(changed):
    assert changed() == ([], [], False, False)
    sources = ('"london/bank" = [1]', '"paris/bank" = [2], "rome/bank" = [1]')
    assert changed(sources) == (["paris/bank", "rome/bank"], ["london/bank"], True, False)
    assert changed(('["jakarta/bank"] }', '["jakarta/bank"], "edge-4" = ["london/*"] }')) == ([], [], True, False)


@pytest.mark.parametrize(("named", "differ"), [("l:9092", True), ("k:9092,l:9092", True), (" k:9092", False)])
def test_other_addresses_of_brokers_are_taken_over(changed, named, differ):
    assert changed(('"k:9092"', f'"{named}"')) == ([], [], True, differ)


@pytest.mark.parametrize(
    ("replaced", "said"),
    [
        ([("lanes = 2", "lanes = 3")], "cannot change kafka.lanes"),
        ([("lanes = 2\n", "")], None),
        ([("env:ONE", "command:get ONE")], "cannot change kafka.password"),
        ([("lanes = 2", 'lanes = 2\nclient = { "client.rack" = "a" }')], "cannot change kafka.client.client.rack"),
        ([("env:ONE", "env:TWO"), ("5671", "5672")], "cannot change kafka.password, interconnect.listen"),
        ([("[streams.sales]", '[streams.sales]\ntopic = "other"')], "cannot change streams.sales.topic"),
        (
            [("[streams.sales]", '[streams.more]\nsources = { "a/b" = [0] }\n[streams.sales]')],
            "cannot change streams.more",
        ),
        ([("[0, 1]", "[0, 1, 2]")], r"to tokyo/sales \(\[0, 1\] before, now \[0, 1, 2\]\)"),
        # By their order keys are shared out.
        ([("[0, 1]", "[1, 0]")], r"another order of them, to tokyo/sales \(\[0, 1\] before, now \[1, 0\]\)"),
        ([("[1] }", "[2] }"), ("lanes = 2", "lanes = 3")], "other partitions, .* to london/bank"),
        ([(', "london/bank" = [1]', ""), ("[0, 1]", '[0, 1], "london/bank" = [2]')], "to london/bank"),
    ],
)
def test_what_needs_a_restart_is_refused_by_name_and_without_values(changed, replaced, said):
    if said is None:
        # what was the default before is no change
        assert changed(*replaced) == ([], [], False, False)
        return
    with pytest.raises(NeedsOperator, match=said) as refused:
        changed(*replaced)
    assert refused.value.hint
    assert "ONE" not in refused.value.message + refused.value.hint
    assert "env:" not in refused.value.message + refused.value.hint


class Admin:
    """A Kafka with two topics, which answers, or does not."""

    refusals = ()

    def __init__(self, **partitions):
        self.partitions, self.answers = partitions, False

    def list_topics(self, timeout):
        if not self.answers:
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        topics = {
            name: SimpleNamespace(error=None, partitions=dict.fromkeys(range(many)))
            for name, many in self.partitions.items()
        }
        return SimpleNamespace(topics=topics)

    def describe_configs(self, resources, request_timeout):
        settings = {"max.message.bytes": "1000000", "cleanup.policy": "delete"}
        entries = {name: SimpleNamespace(value=value) for name, value in settings.items()}
        return {each: SimpleNamespace(result=lambda: entries) for each in resources}

    def poll(self, _seconds):
        pass

    def renew(self):
        pass


def test_a_reload_that_kafka_does_not_answer_is_tried_again_and_one_lost_topic_keeps_no_other_source_away(tmp_path):
    """The operator's SIGHUP was for nothing while Kafka stood still, and for good while the topic of another stream was gone."""
    path = tmp_path / "bridge.toml"
    path.write_text(FILE)
    admin, commands = Admin(bank=3), []
    file = load(path, BridgeFile)
    limits = RecordLimits(admin, {})
    membership = SimpleNamespace(call=commands.append)
    reloader = Reloader(file, admin, limits, [], None, None)
    path.write_text(FILE.replace('"london/bank" = [1]', '"london/bank" = [1], "paris/bank" = [2]'))
    assert not reloader.read_again(membership)
    admin.answers = True
    assert reloader.read_again(membership)
    assert len(commands) == 1
    assert list(limits.missing) == ["sales"]
    # what comes without its partition is refused
    path.write_text(FILE.replace('"london/bank" = [1]', '"london/bank" = [1], "paris/bank" = [3]'))
    assert reloader.read_again(membership)
    assert len(commands) == 1
