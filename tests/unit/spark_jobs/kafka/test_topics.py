"""Which topics are a stream's, and when all of a source is in bronze, are written from names and numbers alone."""

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError, NeedsOperator
from spark_jobs.kafka import client, requests, topics
from spark_jobs.kafka.client import Place, Topic
from spark_jobs.kafka.topics import Reach

LAKE = """
[lake]
root = "."
[kafka]
bootstrap = "127.0.0.1:1"
[streams.bank]
sources = ["jakarta/bank"]
topic_per_table = true
[streams.retail]
topic = "bank.eu.retail"
prefix = "bank.eu"
sources = ["london/bank"]
topic_per_table = true
[streams.plain]
topic = "bank.public.plain"
sources = ["london/plain"]
"""


@pytest.fixture
def lake(tmp_path):
    file = tmp_path / "lake.toml"
    file.write_text(LAKE)
    return load(file, LakeFile)


@pytest.mark.parametrize(
    ("name", "stream"),
    [
        ("bank", "bank"),
        ("bank.public.accounts", "bank"),
        ("bank.public.a.b", "bank"),
        ("bank.dead-letters", None),
        ("banking.public.accounts", None),
        ("bank.eu.public.accounts", "retail"),
        ("bank.eu.retail", "retail"),
        ("bank.public.plain", None),
    ],
)
def test_a_topic_is_of_one_stream_at_most(lake, name, stream):
    assert [each for each in ("bank", "retail") if lake.has_topic(each, name)] == ([stream] if stream else [])


def test_a_prefix_goes_with_a_topic_for_each_table(tmp_path):
    file = tmp_path / "lake.toml"
    file.write_text(LAKE.replace("topic_per_table = true", ""))
    with pytest.raises(ConfigurationError, match="topic_per_table"):
        load(file, LakeFile)


def test_positions_are_reached_when_all_ends_are_passed():
    reach = Reach({"jakarta/bank": "p"}, {Place("bank", 0): 5, Place("bank.public.t", 0): 9, Place("bank", 1): 0})
    assert reach.passed({"bank": {0: 5}, "bank.public.t": {0: 12}})
    assert not reach.passed({"bank": {0: 5}, "bank.public.t": {0: 8}})
    assert not reach.passed({"bank": {0: 5}})


def test_the_newest_note_of_a_source_s_group_tells_its_position(lake, monkeypatch):
    older, newer = "692010c0/0000000001a00000/00000000", "692010c0/0000000001a00001/00000003"
    asked = []

    def position(*former, shared=()):
        held = {"headrace.bridges": shared, "headrace.jakarta/bank": former}
        asked.clear()

        def committed(_kafka, group, _places):
            asked.append(group)
            return {Place("bank", partition): text for partition, text in enumerate(held[group])}

        monkeypatch.setattr(topics, "read_committed", committed)
        return topics._positions(lake, ["jakarta/bank"], [Place("bank", 0)]).get("jakarta/bank")

    # In the group of bridges each entry names its source; only where it has none, the group of a former release is read.
    entries = [
        f"2 {newer} 2026-01-31T09:15:01.000Z jakarta/bank one",
        f"2 {older} 2026-01-31T09:15:02.000Z london/bank one",
    ]
    assert position(f"{older} 2026-01-31T09:15:00.999Z two", shared=entries) == newer
    # L19: one request for all sources.
    assert asked == ["headrace.bridges"]
    assert position(f"{older} 2026-01-31T09:15:00.999Z two", shared=entries[1:]) == older
    assert position(f"{newer} 2026-01-31T09:15:01.000Z one", f"{older} 2026-01-31T09:15:00.999Z two") == newer
    assert position("- 2026-01-31T09:15:01.000Z one") is None
    assert position() is None


@pytest.mark.parametrize("foreign", ["", "mine", "mine 2026 x", "2 mine 2026 jakarta/bank one"])
def test_an_offset_of_another_tool_concerns_its_partition_alone(lake, monkeypatch, caplog, foreign):
    at = "692010c0/0000000001a00000/00000000"
    held = {"headrace.bridges": [foreign, f"2 {at} 2026 london/bank one"], "headrace.jakarta/bank": [foreign]}
    monkeypatch.setattr(
        topics,
        "read_committed",
        lambda _kafka, group, _places: dict(zip((Place("bank", 0), Place("bank", 1)), held[group], strict=False)),
    )
    assert topics._positions(lake, ["jakarta/bank", "london/bank"], []) == {"london/bank": at}
    groups = [record.args[0] for record in caplog.records]
    assert groups == ["headrace.bridges", "headrace.jakarta/bank"]
    assert "bank[0]" in caplog.text
    assert topics._of_group(lake, []) == {Place("bank", 1): (at, "2026", "london/bank")}


def test_s3_the_owner_of_a_partition_is_the_source_for_which_bridges_committed_there(lake, monkeypatch):
    at = "692010c0/0000000001a00000/00000000 2026-01-31T09:15:01.000Z"
    held = {Place("bank", 0): f"2 {at} london/bank one", Place("bank", 2): f"2 {at} jakarta/bank two"}
    # One that a source has left is nobody's: its records are those of the source that they name.
    held[Place("bank", 1)] = "2 - 2026-01-31T09:15:01.000Z - headrace bridge move"
    monkeypatch.setattr(client, "describe", lambda *_: Topic(name="bank", id="x", starts={}, ends={0: 1, 1: 0, 2: 4}))
    monkeypatch.setattr(topics, "read_committed", lambda *_: held)
    assert topics.owners(lake, "bank") == {0: "london/bank", 2: "jakarta/bank"}


def test_a_topic_that_the_stream_no_longer_has_is_named():
    bank = Topic(name="bank", id="one", starts={0: 0}, ends={0: 10})
    requests.check_known({"bank"}, [bank], table="/lake/bronze/bank")
    with pytest.raises(NeedsOperator, match=r"was loaded from bank\.public\.t, which"):
        requests.check_known({"bank", "bank.public.t"}, [bank], table="/lake/bronze/bank")


def test_a_compacted_topic_is_refused():
    requests.check_compacted([])
    with pytest.raises(NeedsOperator, match=r"compacts bank\.public\.t"):
        requests.check_compacted(["bank.public.t"])
