"""Which positions a note of bronze has, where tables have topics of their own; into how many files a batch goes."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

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


def test_positions_are_forgotten_until_a_topic_that_joined_is_passed():
    """Its records may be before them: their second half was passed over where it came in two batches."""
    hidden = Place("bank.public.hidden", 0)
    former, now = reach(9, 9, j="b"), reach(9, 9, j="c")
    now.heads[hidden] = 7
    sink = make_sink(9, 9, former, now, positions={J: "a", L: "x"})

    def with_hidden(offset):
        return replace(sink.progress, topics=sink.progress.topics | {hidden.topic: Held({0: offset})})

    # when half of it is there
    half = sink._passed(sink._joined(with_hidden(4)))
    assert half.positions == {}
    # then its rest brings them back, those that Kafka has forgotten too
    sink.progress = half
    assert sink._passed(sink._joined(with_hidden(7))).positions == {J: "c", L: "x"}


def test_topics_that_join_again_and_again_keep_no_positions_back_whose_ends_are_passed():
    first, second = reach(9, 9, j="b"), reach(99, 9, j="c")
    for number, each in enumerate((first, second)):
        each.heads[Place(f"bank.public.t{number}", 0)] = 7
    sink = make_sink(9, 9, first, positions={J: "a", L: "x"})
    for number, each in enumerate((first, second)):
        sink.observed(each) if number else None
        held = sink.progress.topics | {f"bank.public.t{number}": Held({0: 7})}
        sink.progress = sink._passed(sink._joined(replace(sink.progress, topics=held)))
        # an end that readers do not reach holds up its own positions alone
        assert sink.progress.positions == {J: "b", L: "x"}


def test_a_stream_of_one_topic_notes_no_positions():
    sink = make_sink(9, 9, None)
    sink.settle()
    assert sink.progress.positions is None


@pytest.mark.parametrize(
    ("records", "files"), [(1, 1), (100_001, 2), (250_000, 2), (500_000, 2), (500_001, 3), (2_000_000, 8)]
)
def test_x8_a_task_sorts_no_more_than_it_has_memory_for_and_no_core_is_idle(records, files):
    """Of 1,000,000 records for a task, two tasks of the default driver spilled while they sorted."""
    own = Sink.__new__(Sink)
    own._spark = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=2))
    assert own._files(records) == files
