"""Which positions a note of bronze has, where tables have topics of their own."""

from spark_jobs.bronze.sink import Sink
from spark_jobs.kafka.client import Place
from spark_jobs.kafka.topics import Reach
from spark_jobs.state.offsets import Held, Progress

J, L = "jakarta/bank", "london/bank"


def reach(own, table, **positions):
    return Reach(
        {{"j": J, "l": L}[source]: at for source, at in positions.items()},
        {Place("bank", 0): own, Place("bank.public.t", 0): table},
    )


def make_sink(own, table, *reaches, positions=None):
    held = {"bank": Held({0: own}), "bank.public.t": Held({0: table})}
    made = Sink(None, None, "bank", Progress(topics=held, positions=positions))
    for each in reaches:
        made.observed(each)
    return made


def test_a_note_has_the_newest_positions_whose_ends_all_topics_have_passed():
    # given three looks, of which the last is not passed in one topic
    looks = [reach(1, 1, j="a"), reach(4, 3, j="b", l="x"), reach(5, 9, j="c", l="y")]
    sink = make_sink(9, 4, *looks)
    # when
    after = sink._passed(sink.progress)
    # then
    assert after.positions == {J: "b", L: "x"}
    assert sink._reaches == looks[1:]
    assert sink._passed(after) == after
    # and what is not committed yet is not taken for it
    assert sink.progress.positions is None


def test_nothing_is_noted_before_its_ends_are_passed():
    sink = make_sink(9, 4, reach(9, 5, j="b"), positions={J: "a"})
    assert sink._passed(sink.progress) == sink.progress


def test_a_position_never_goes_back_and_is_kept_when_kafka_has_forgotten_it():
    sink = make_sink(9, 9, reach(9, 9, j="a"), positions={J: "b", L: "x"})
    assert sink._passed(sink.progress) == sink.progress


def test_a_stream_of_one_topic_notes_no_positions():
    sink = make_sink(9, 9, None)
    sink.settle()
    assert sink.progress.positions is None
