"""What the server shows goes on after whatever cannot be looked up, with the lake's file as it is, until Spark has ended."""

import json
import os
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import NeedsOperator
from headrace.waiting import StopRequest
from spark_jobs.errors import SparkFailed
from spark_jobs.query.published_tables import Relation
from spark_jobs.serve import server
from spark_jobs.serve.server import Follower

FILE = '[lake]\nroot = "lake"\n[kafka]\nbootstrap = "nobody:1"\n[streams.bank]\nsources = ["a/bank"]\n'


class Served:
    """A session and the doors: what was published there last, and which names its catalog has."""

    def __init__(self):
        self.published, self.numbers, self.views, self.refused = [], [], set(), set()
        self.is_stopped = False
        self.Publications = self.sparkContext = self
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: self.is_stopped))

    def publish(self, text):
        given = json.loads(text)
        self.published = [each["name"] for each in given["relations"]]
        self.numbers.append(given["number"])

    def sql(self, text):
        words = text.split()
        if words[0] == "CREATE" and "VIEW" in words:
            name = words[words.index("VIEW") + 1]
            if name in self.refused:
                raise server.Py4JError("it cannot be read")
            self.views.add(name)


class Rounds(StopRequest):
    """Is made after some looks, and waits for nothing."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def wait(self, seconds):
        if seconds < 1:
            self.looks -= 1
        return self.looks < 0


@pytest.fixture
def lake(tmp_path):
    file = tmp_path / "lake.toml"
    file.write_text(FILE)
    return load_file(file, LakeFile)


@pytest.fixture
def published(monkeypatch):
    """What is published, as a mark; each stream of the file has a table of bronze that is shown."""
    marks = [(0, "a")]
    monkeypatch.setattr(server.delta_log, "is_table", lambda *_: True)
    monkeypatch.setattr(server.delta_log, "mark", lambda *_: marks[-1])
    monkeypatch.setattr(server.publication, "columns", lambda *_: {})

    def newest(_spark, lake):
        return [
            Relation(database="bronze", name=name, path=f"/{name}", version=marks[-1][0])
            for name in sorted(lake.streams)
        ]

    monkeypatch.setattr(server.publication, "newest", newest)
    return marks


def follower(served, lake, looks=1):
    return Follower(served, lake, served, Rounds(looks))


def write(lake, text):
    """Change the lake's file; not all file systems have times as fine as tests are quick."""
    file = Path(lake.path)
    later = file.stat().st_mtime_ns + 1_000_000
    file.write_text(text)
    os.utime(file, ns=(later, later))


def test_an_error_of_the_files_is_passed_over(lake, published, monkeypatch, caplog):
    served, looked = Served(), []

    def mark(*_):
        looked.append(True)
        if len(looked) == 1:
            raise OSError(116, "Stale file handle")
        return published[-1]

    monkeypatch.setattr(server.delta_log, "mark", mark)
    follower(served, lake, looks=2).follow()
    assert (served.published, len(looked)) == (["bank"], 2)
    assert "cannot be looked up now: Stale file handle" in caplog.text


def test_the_server_ends_once_its_spark_has(lake, published):
    served = Served()
    served.is_stopped = True
    with pytest.raises(SparkFailed, match="Spark has ended") as ended:
        follower(served, lake).follow()
    assert ended.value.exit_code == 5


def test_a_file_that_could_not_be_read_is_read_again_though_it_stays_as_it_is(lake, published, monkeypatch, caplog):
    """A secret in a file of its own may be away for a moment."""
    monkeypatch.setattr(server, "_AGAIN_SECONDS", 0.0)
    served = Served()
    looks = follower(served, lake)
    write(lake, FILE + '[streams.new]\nsources = ["a/new"]\n')
    with monkeypatch.context() as patch:
        patch.setattr(server, "load_file", Mock(side_effect=NeedsOperator("the file of a secret is not there")))
        looks.look()
        looks.look()
    assert (served.published, caplog.text.count("is not there")) == (["bank"], 1)
    looks.look()
    assert served.published == ["bank", "new"]


def test_streams_that_come_to_the_lakes_file_are_shown(lake, published, caplog):
    served = Served()
    looks = follower(served, lake)
    looks.look()
    assert served.published == ["bank"]
    looks.look()
    assert len(served.numbers) == 1
    write(lake, FILE + '[streams.new]\nsources = ["a/new"]\n')
    looks.look()
    assert served.published == ["bank", "new"]
    # the past has other relations then, too
    assert len(set(served.numbers)) == 2
    # a file that cannot be read, and what only a start takes, are reported once, and change nothing
    for text, reported in (
        ("[lake", "shown as they were"),
        (FILE.replace('"lake"', '"other"'), "start the server again"),
    ):
        caplog.clear()
        write(lake, text)
        looks.look()
        looks.look()
        assert served.published == ["bank", "new"]
        assert caplog.text.count(reported) == 1
    write(lake, FILE)
    looks.look()
    assert served.published == ["bank"]


def test_names_that_were_not_listed_are_listed_later(lake, published, monkeypatch):
    served, now = Served(), [0.0]
    monkeypatch.setattr(server, "monotonic", lambda: now[0])
    looks = follower(served, lake)
    # a list that fails as a whole is made at the next look
    with monkeypatch.context() as failing:
        failing.setattr(server.publication, "columns", lambda *_: {}["columns"])
        with pytest.raises(KeyError):
            looks.look()
    served.refused.add("bronze.`bank`")
    looks.look()
    assert (served.published, served.views) == (["bank"], set())
    # a name of a table that could not be opened, after a while
    served.refused.clear()
    looks.look()
    assert served.views == set()
    now[0] += server._AGAIN_SECONDS
    looks.look()
    assert served.views == {"bronze.`bank`"}
    looks.look()
    assert len(set(served.numbers)) == 1


def test_what_changes_without_a_publication_is_shown_after_a_while(lake, published, monkeypatch):
    """Maintenance puts files of bronze together, and removes those of the version that was shown once it is old."""
    served, now, version = Served(), [0.0], 1
    monkeypatch.setattr(server, "monotonic", lambda: now[0])
    monkeypatch.setattr(
        server.publication,
        "newest",
        lambda *_: [Relation(database="bronze", name="bank", path="/bank", version=version)],
    )
    looks = follower(served, lake)
    looks.look()
    version = 2
    looks.look()
    assert len(served.numbers) == 1
    now[0] += server._AGAIN_SECONDS
    looks.look()
    # the past has other versions then, too
    assert len(set(served.numbers)) == 2
