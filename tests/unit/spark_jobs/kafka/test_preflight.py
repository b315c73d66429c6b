"""What retention took, and a topic that is another one, are found from numbers alone."""

import pytest

from headrace.errors import NeedsOperator
from spark_jobs.kafka import requests
from spark_jobs.kafka.client import Topic


def topic(starts, ends, name="bank", topic_id="now"):
    return Topic(name=name, id=topic_id, starts=starts, ends=ends)


def test_gap_is_what_is_needed_and_no_longer_held():
    # given a partition that goes on, one that retention cut, and one that the lake has never seen
    kafka = topic({0: 5, 1: 20, 2: 3}, {0: 50, 1: 60, 2: 9})
    # when
    gaps = requests.gaps({0: 5, 1: 12}, kafka)
    # then
    assert [str(gap) for gap in gaps] == [
        "partition 1: offsets 12 to 19 (8 of them)",
        "partition 2: offsets 0 to 2 (3 of them)",
    ]
    with pytest.raises(NeedsOperator) as refused:
        requests.check_retention({0: 5, 1: 12}, kafka, stream="bank")
    assert "partition 1: offsets 12 to 19" in refused.value.message
    assert "headrace lake load bank --accept-gap" in refused.value.hint
    requests.check_retention({0: 5, 1: 20, 2: 3}, kafka, stream="bank")


@pytest.mark.parametrize(
    ("needed", "topic_id"),
    [({0: 51}, "now"), ({0: 10}, "before"), ({0: 10, 7: 3}, "now")],
    ids=["beyond the end", "another id", "a partition that is gone"],
)
def test_topic_made_anew_is_recognised(needed, topic_id):
    with pytest.raises(NeedsOperator, match="deleted and created again"):
        requests.check_identity(needed, topic({0: 0}, {0: 50}), topic_id=topic_id, table="/lake/bronze/bank")


@pytest.mark.parametrize(("needed", "topic_id"), [({}, None), ({0: 50}, "now"), ({0: 10}, None)])
def test_same_topic_passes(needed, topic_id):
    requests.check_identity(needed, topic({0: 0, 1: 0}, {0: 50, 1: 9}), topic_id=topic_id, table="/lake/bronze/bank")


def test_a_stream_with_a_topic_for_each_table_is_refused_before_its_first_load(caplog):
    topic = Topic(name="bank", id="one", starts={0: 0}, ends={0: 10})
    requests.check_one_topic({}, topic, list)
    assert not caplog.messages
    # What is loaded already is loaded on, and the log says what is not.
    requests.check_one_topic({"bank"}, topic, lambda: ["bank.public.accounts"])
    assert "not loaded: bank.public.accounts." in caplog.text
    with pytest.raises(NeedsOperator, match=r"a topic for each table: bank\.public\.accounts$"):
        requests.check_one_topic({}, topic, lambda: ["bank.public.accounts"])
