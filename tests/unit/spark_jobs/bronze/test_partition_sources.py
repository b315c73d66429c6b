"""Whose a partition is: bronze's notes remember it, and the bridges' offsets say where it was given to another source (S3)."""

import json

from headrace.errors import NotConnected
from spark_jobs.bronze import quarantine
from spark_jobs.kafka import topics
from spark_jobs.state import offsets
from spark_jobs.state.offsets import Held, Progress

J, L, P = "jakarta/bank", "london/bank", "paris/bank"


def test_s3_notes_remember_the_sources_of_partitions():
    progress = Progress(topics={"bank": Held({0: 3, 12: 1}, "id")}, sources={0: (J,), 12: (L, P)})
    assert offsets.parse(json.loads(offsets.note("bank", progress))).sources == progress.sources
    former = json.loads(offsets.note("bank", progress))
    del former["sources"]
    assert offsets.parse(former).sources == {}


def test_a_partition_belongs_to_another_source_once_bridges_commit_for_that_one(monkeypatch):
    monkeypatch.setattr(topics, "owners", lambda *_: {0: J, 1: P, 2: L})
    assert quarantine.renewed(None, "bank", {0: (J,), 1: (L,)}) == {1: P}


def test_where_kafka_does_not_say_it_nothing_changes(monkeypatch):
    def refuse(*_):
        raise NotConnected("no answer", hint="wait")

    monkeypatch.setattr(topics, "owners", refuse)
    assert quarantine.renewed(None, "bank", {0: (J,)}) == {}
