"""Record limits: each topic its own; one that has grown is noticed when a record asks for it."""

import pytest

from bridge.kafka import topics
from bridge.kafka.topics import FRAME_BYTES, MissingPartitions, RecordLimits, Wanted
from bridge.model.ports import Share
from headrace.errors import NotConnected

LIMIT = 2000


@pytest.mark.parametrize(
    ("keys", "values", "exceeded"),
    [
        ([b"k"], [b"v" * (LIMIT - FRAME_BYTES - 1)], False),
        ([b"k"], [b"v" * (LIMIT - FRAME_BYTES)], True),
        # The longest key and the longest value are two records'.
        ([b"k" * 1000, None], [None, b"v" * 1000], False),
        ([None], [None], False),
    ],
)
def test_a_record_is_measured_with_its_key(keys, values, exceeded):
    limits = RecordLimits(None, {}, {"small": LIMIT})
    assert limits.exceeded_by(Share("small", 0, keys, values)) is exceeded
    assert not limits.exceeded_by(Share("other", 0, keys, values))


def test_a_record_is_measured_with_its_headers():
    limits = RecordLimits(None, {}, {"small": LIMIT})
    headers = [("ce_id", b"i" * 35), ("ce_source", b"s" * 100)]
    size = sum(len(name) + len(value) for name, value in headers)
    for more, exceeded in ((0, False), (1, True)):
        values = [b"v", b"v" * (LIMIT - FRAME_BYTES - size + more)]
        assert limits.exceeded_by(Share("small", 0, [None, None], values, dict.fromkeys((0, 1), headers))) is exceeded


def test_limits_are_read_again_and_kafka_that_does_not_answer_rejects_nothing(monkeypatch):
    limits = RecordLimits(None, {"small": Wanted(1)}, {"small": LIMIT})
    now = [100.0]
    monkeypatch.setattr(topics.time, "monotonic", lambda: now[0])
    answers = iter([{"small": LIMIT}, {"small": 3 * LIMIT}])
    monkeypatch.setattr(topics, "check", lambda *_, **__: next(answers))
    assert not limits.refresh(["small"])
    # Not asked about: whoever sends what is too large would have all others of the lane wait.
    assert not limits.refresh(["small"])
    now[0] += 1
    assert limits.refresh(["small"])
    assert limits.smallest == 3 * LIMIT
    # Another source whose batch was too large for what was known ahead of that sends it again.
    assert limits.refresh(["small"])
    now[0] += 1

    def unavailable(*_, **__):
        raise NotConnected("no answer")

    monkeypatch.setattr(topics, "check", unavailable)
    assert limits.refresh(["small"])


def test_a_file_that_is_read_again_while_missing_topics_are_looked_for_has_the_last_word(monkeypatch):
    limits = RecordLimits(None, {})
    lack = MissingPartitions("former", 0, 1)
    limits.load({}, {"former": Wanted(1)}, {"former": lack})

    def read_again(_admin, asked, **_):
        assert list(asked) == ["former"]
        limits.load({}, {"other": Wanted(1)}, {"other": lack})
        return {"former": LIMIT}

    monkeypatch.setattr(topics, "check", read_again)
    assert limits.look_for_missing() == []
    assert limits.missing == {"other": lack}
