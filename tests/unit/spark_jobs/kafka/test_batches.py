"""What a batch of bronze reads, from numbers alone."""

import json

from spark_jobs.kafka.client import Topic
from spark_jobs.kafka.topics import bounds, held_after, next_batch, partitions, records_of
from spark_jobs.state.offsets import Held, Progress


def topic(starts, ends, name="bank"):
    return Topic(name=name, id="now", starts=starts, ends=ends)


def test_a_batch_begins_where_the_table_ends_and_in_a_new_partition_where_kafka_does():
    held = Progress(topics={"bank": Held({0: 12, 2: 9}, "now")})
    kafka = [topic({0: 5, 1: 3, 2: 0}, {0: 20, 1: 4, 2: 9}), topic({0: 0}, {0: 0}, "bank.public.t")]
    # when
    batch = next_batch(held, kafka, 1000)
    # then
    assert batch == {"bank": {0: (12, 20), 1: (3, 4)}}
    assert records_of(batch) == 9
    assert json.loads(bounds(batch, 0)) == {"bank": {"0": 12, "1": 3}}
    assert json.loads(bounds(batch, 1)) == {"bank": {"0": 20, "1": 4}}
    assert json.loads(partitions(batch)) == {"bank": [0, 1]}
    # and the note has an offset for every partition that there is
    after = held_after(held, kafka, batch)
    assert after.topics == {"bank": Held({0: 20, 1: 4, 2: 9}, "now"), "bank.public.t": Held({0: 0}, "now")}
    assert next_batch(after, kafka, 1000) == {}


def test_a_bounded_batch_takes_a_share_of_each_partition_and_all_is_read_in_the_end():
    kafka = [topic({0: 0, 1: 0, 2: 0}, {0: 1000, 1: 10, 2: 1})]
    held, sizes = Progress(), []
    while batch := next_batch(held, kafka, 100):
        assert all(end > start for start, end in batch["bank"].values())
        sizes.append(records_of(batch))
        held = held_after(held, kafka, batch)
        assert len(sizes) < 50
    # at most one record of each partition more than the limit
    assert max(sizes) <= 103
    assert held.of("bank").offsets == {0: 1000, 1: 10, 2: 1}


def test_a_batch_of_one_partition_is_never_larger_than_the_limit():
    for end in range(1, 400):
        for limit in (1, 10, 50):
            batch = next_batch(Progress(), [topic({0: 0}, {0: end})], limit)
            assert records_of(batch) == min(end, limit)


def test_where_retention_took_records_a_batch_begins_where_kafka_does():
    held = Progress(topics={"bank": Held({0: 5}, "now")})
    kafka = [topic({0: 10}, {0: 10})]
    assert next_batch(held, kafka, 100) == {}
    assert held_after(held, kafka, {}).of("bank").offsets == {0: 10}
