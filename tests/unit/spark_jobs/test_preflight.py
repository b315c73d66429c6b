"""What a look without Spark reads of the lake's logs."""

import json

import msgspec
import pytest

from headrace.configuration.lake import LakeFile
from spark_jobs import preflight
from spark_jobs.state import delta_log, offsets, publication
from spark_jobs.state.log_files import LocalFiles
from spark_jobs.state.offsets import Held, Progress


class CountedFiles(LocalFiles):
    """Files of a lake, with how many commits were read."""

    commits = 0

    def read(self, path):
        self.commits += path.endswith(".json")
        return super().read(path)


def test_l48_a_quiet_stream_is_not_looked_for_behind_all_that_another_one_published(tmp_path):
    """L48: of a quiet stream every publication of others since its own was read, for minutes on an object store."""
    log = tmp_path / "state" / "_delta_log"
    log.mkdir(parents=True)

    def publish(number, stream):
        note = delta_log.write(publication.NOTE, stream=stream, whole=True)
        commit = {"commitInfo": {"operation": "WRITE", "timestamp": number, "userMetadata": note}}
        (log / f"{number:020d}.json").write_text(json.dumps(commit))

    publish(0, "quiet")
    for number in range(1, 60):
        publish(number, "busy")
    files = CountedFiles(tmp_path)
    assert preflight._published(files, "quiet")["stream"] == "quiet"
    for number in range(60, 1000):
        publish(number, "busy")
    files.commits = 0
    assert preflight._published(files, "quiet") is None
    assert files.commits < 150
    assert preflight._published(files, "busy")["stream"] == "busy"


def committed(path, number, **info):
    """Write a commit of a table."""
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    commit = {"commitInfo": {"operation": "WRITE", "timestamp": number, "txnId": f"of {number}"} | info}
    (log / f"{number:020d}.json").write_text(json.dumps(commit) + "\n")


@pytest.fixture
def published_lake(tmp_path):
    """Return a function that makes a lake whose stream was published at version 1 of bronze, of which there are more."""

    def make(*added, **noted):
        given = {
            "lake": {"root": str(tmp_path)},
            "kafka": {"bootstrap": "127.0.0.1:1"},
            "streams": {"bank": {"sources": ["a/b"]}},
        }
        lake = msgspec.convert(given, LakeFile)
        for number, rows in enumerate((1_000_000, 1_000_000, *added)):
            note = {"userMetadata": offsets.note("bank", Progress({"bank": Held({0: 1}, "id")}))}
            committed(tmp_path / "bronze" / "bank", number, operationMetrics={"numOutputRows": str(rows)}, **note)
        committed(tmp_path / "silver" / "bank" / "public.t", 0)
        note = {
            "stream": "bank",
            "whole": True,
            "bronze_version": 1,
            "bronze_commit": "of 1",
            "tables": publication.tables_digest(["public.t"]),
            "settings": publication.settings(lake, "bank"),
            "seconds": 8.0,
            "waiting": 10,
        }
        committed(tmp_path / "state", 0, userMetadata=delta_log.write(publication.NOTE, **note | noted))
        return lake

    return make


def test_few_records_for_tables_that_are_brought_up_in_seconds_are_known_ahead(published_lake):
    outlook = preflight.look(published_lake(50_000, 49_990), "bank", "silver")
    assert (outlook.few, outlook.report) == (True, None)


def test_a_stream_that_is_published_whole_has_nothing_to_do(published_lake):
    assert preflight.look(published_lake(), "bank", "silver").report is not None


@pytest.mark.parametrize(
    ("added", "noted"),
    [
        ([50_000, 49_991], {}),
        ([5] * 300, {}),
        ([5], {"seconds": 31.0}),
        ([5], {"seconds": None}),
        ([5], {"waiting": 100_000}),
        ([5], {"whole": False}),
        ([5], {"bronze_commit": "of another bronze"}),
        ([5], {"tables": "of other folders"}),
        ([5], {"settings": "of another file"}),
        ([5], {"stream": "another"}),
    ],
    ids=[
        "rows",
        "commits",
        "large tables",
        "an earlier release",
        "unfinished",
        *("behind", "bronze", "folders", "file", "new"),
    ],
)
def test_what_may_be_much_is_not_taken_for_little(published_lake, added, noted):
    outlook = preflight.look(published_lake(*added, **noted), "bank", "silver")
    assert outlook == preflight.Outlook(report=None, few=False)
