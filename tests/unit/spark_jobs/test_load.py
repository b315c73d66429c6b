"""What a load did is recorded, however it ends."""

from types import SimpleNamespace

import pytest

from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load as load_file
from headrace.errors import Retryable
from spark_jobs import load
from spark_jobs.bronze.load import BronzeReport
from spark_jobs.silver.load import SilverReport


@pytest.fixture
def lake(tmp_path):
    file = tmp_path / "lake.toml"
    file.write_text('[lake]\nroot = "lake"\n[kafka]\nbootstrap = "nobody:1"\n[streams.bank]\nsources = ["a/bank"]\n')
    return load_file(file, LakeFile)


@pytest.mark.parametrize("published", [False, True])
def test_what_a_cancelled_load_did_is_recorded_by_jobs_that_are_not_cancelled(lake, monkeypatch, published):
    # given a load whose jobs are known by a tag, and that is cancelled behind bronze, or behind silver
    tags, recorded = {"headrace-load"}, []
    spark = SimpleNamespace(sparkContext=SimpleNamespace(clearJobTags=tags.clear))
    raw, current = BronzeReport(stream="bank", topic="bank", records=7), SilverReport(stream="bank")

    def silver(*_, **__):
        if published:
            return current
        raise Retryable("cancelled")

    def record(_spark, _lake, *done):
        recorded.append((set(tags), *done))
        return {}

    monkeypatch.setattr(load.bronze, "load", lambda *_, **__: raw)
    monkeypatch.setattr(load.silver, "load", silver)
    monkeypatch.setattr(load.run_log, "record", record)
    # when
    if published:
        load.run(spark, lake, "bank")
    else:
        with pytest.raises(Retryable, match="cancelled"):
            load.run(spark, lake, "bank")
    # then
    assert recorded == [(set(), raw, current if published else None)]
