"""The files of tables' logs are found with few looks, and a store that cannot be read is left to Spark."""

import json

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from spark_jobs import preflight
from spark_jobs.state import delta_log, log_files

LAKE = '[lake]\nroot = "{}"\n[kafka]\nbootstrap = "127.0.0.1:1"\n[streams.bank]\nsources = ["jakarta/bank"]\n'


class Counted(log_files.LocalFiles):
    """Files of this machine, with the number of looks."""

    looks = 0

    def exists(self, path: str) -> bool:
        self.looks += 1
        return super().exists(path)


@pytest.mark.parametrize("newest", [*range(150, 160), 163, 170, 181, 199])
def test_newest_commit_after_a_checkpoint_is_found_with_few_looks(tmp_path, newest):
    log = tmp_path / "_delta_log"
    log.mkdir()
    for version in range(140, newest + 1):
        info = {"userMetadata": delta_log.write("silver", number=version)}
        (log / f"{version:020d}.json").write_text(json.dumps({"commitInfo": info}))
    (log / "_last_checkpoint").write_text('{"version":150}')
    files = Counted()

    assert delta_log.local_note(str(tmp_path), "silver", files)[1]["number"] == newest
    assert files.looks <= 13


@pytest.mark.timeout(60)
def test_store_that_does_not_answer_is_left_to_spark(tmp_path, monkeypatch):
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    file = tmp_path / "lake.toml"
    server = '[spark.settings]\n"spark.hadoop.fs.s3a.endpoint" = "http://127.0.0.1:1"\n'
    file.write_text(server + LAKE.format("s3a://bucket/lake"))
    lake = load(file, LakeFile)

    assert preflight.report(lake, "bank", "silver") is None
    assert not preflight.whole(lake, "bank")


def test_other_stores_are_left_to_spark(tmp_path):
    file = tmp_path / "lake.toml"
    for root in ("hdfs://names/lake", "abfss://c@a.dfs.core.windows.net/lake"):
        file.write_text(LAKE.format(root))
        assert log_files.of_lake(load(file, LakeFile)) is None
