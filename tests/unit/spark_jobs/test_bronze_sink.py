"""Which positions a note of bronze tells, where tables have topics of their own."""

import pytest

from headrace.errors import Retryable
from spark_jobs.bronze_sink import Sink
from spark_jobs.kafka import Place, Topic
from spark_jobs.offsets import Held, Progress
from spark_jobs.topics import Reach

J, L = "jakarta/bank", "london/bank"
TOPICS = [Topic(name=name, id=name, starts={0: 0}, ends={0: 9}) for name in ("bank", "bank.public.t")]


def reach(own, table, **positions):
    return Reach(
        {{"j": J, "l": L}[source]: at for source, at in positions.items()},
        {Place("bank", 0): own, Place("bank.public.t", 0): table},
    )


def sink(own, table, *reaches, positions=None):
    held = {"bank": Held({0: own}), "bank.public.t": Held({0: table})}
    made = Sink(None, None, "bank", TOPICS, Progress(topics=held, positions=positions))
    made._reaches.extend(reaches)
    return made


def test_a_note_tells_the_newest_positions_whose_ends_all_topics_have_passed():
    # given three looks, of which the last is not passed in one topic
    looks = [reach(1, 1, j="a"), reach(4, 3, j="b", l="x"), reach(5, 9, j="c", l="y")]
    made = sink(9, 4, *looks)
    # when
    after = made._passed(made.progress)
    # then
    assert after.positions == {J: "b", L: "x"}
    assert made._reaches == looks[1:]
    assert made._passed(after) == after
    # and what is not committed yet is not taken for it
    assert made.progress.positions is None


def test_nothing_is_told_before_its_ends_are_passed():
    made = sink(9, 4, reach(9, 5, j="b"), positions={J: "a"})
    assert made._passed(made.progress) == made.progress


def test_a_position_never_goes_back_and_is_kept_when_kafka_has_forgotten_it():
    made = sink(9, 9, reach(9, 9, j="a"), positions={J: "b", L: "x"})
    assert made._passed(made.progress) == made.progress


def test_a_stream_of_one_topic_tells_no_positions():
    made = sink(9, 9)
    made.settle()
    assert made.progress.positions is None
    assert made.progress.of("bank") == Held({0: 9}, "bank")


def test_a_batch_after_the_end_is_left_to_the_next_load():
    made = sink(9, 4)
    made.end()
    with pytest.raises(Retryable, match="the load has ended"):
        made.write(None, 1)
    assert made.progress.batch is None
