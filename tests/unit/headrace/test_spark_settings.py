"""Secrets in [spark.settings] of the lake's file (S9): followed late, shown nowhere."""

import json
import sys

import pytest
from click.testing import CliRunner

from headrace.configuration.command import config
from headrace.configuration.lake import LakeFile
from headrace.configuration.load import load
from headrace.errors import ConfigurationError

S3A = "spark.hadoop.fs.s3a."
FILE = """
[lake]
root = "s3a://lake/tables"
[kafka]
bootstrap = "k:9092"
[spark.settings]
{settings}
[streams.bank]
sources = ["jakarta/bank"]
"""


@pytest.fixture
def written(tmp_path):
    def write(ahead="", **settings):
        text = "\n".join(f"{json.dumps(name)} = {json.dumps(value)}" for name, value in settings.items())
        path = tmp_path / "lake.toml"
        path.write_text(ahead + FILE.format(settings=text))
        return path

    return write


def test_s9_references_are_followed_when_spark_starts_and_shown_as_they_are(written, tmp_path, monkeypatch):
    (tmp_path / "key").write_text("OF-THE-FILE\n")
    program = tmp_path / "print-token"
    program.write_text(f"#!{sys.executable}\nprint('OF-THE-COMMAND')\n")
    program.chmod(0o700)
    path = written(
        **{
            f"{S3A}access.key": "env:LAKE_KEY",
            f"{S3A}secret.key": "file:key",
            f"{S3A}session.token": f"command:{program} --for lake",
            "spark.hadoop.fs.s3a.endpoint": "env:LAKE_ENDPOINT",
            # No references: a URI, and a setting that holds no secret.
            "spark.eventLog.dir": "file:/var/log/spark",
        }
    )
    monkeypatch.delenv("LAKE_KEY", raising=False)
    lake = load(path, LakeFile)
    shown = CliRunner().invoke(config, ["show", str(path), "--set"]).output

    with pytest.raises(ConfigurationError, match="LAKE_KEY is not set"):
        lake.spark_settings()
    monkeypatch.setenv("LAKE_KEY", "OF-THE-ENVIRONMENT")
    monkeypatch.setenv("LAKE_ENDPOINT", "s3.example")
    assert lake.spark_settings() == {
        f"{S3A}access.key": "OF-THE-ENVIRONMENT",
        f"{S3A}secret.key": "OF-THE-FILE",
        f"{S3A}session.token": "OF-THE-COMMAND",
        "spark.hadoop.fs.s3a.endpoint": "s3.example",
        "spark.eventLog.dir": "file:/var/log/spark",
    }
    assert "OF-THE" not in shown
    assert {"env:LAKE_KEY", "file:key", "command:print-token"} <= {word.strip('"') for word in shown.split()}


def test_s9_a_secret_in_the_file_itself_is_not_shown_and_not_fit_for_production(written):
    given = {f"{S3A}access.key": "AKIA-OPEN", "spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net": "AZURE-OPEN"}
    path = written(**given)

    shown = CliRunner().invoke(config, ["show", str(path), "--json"])

    assert shown.exit_code == 0
    assert "-OPEN" not in shown.output
    assert load(path, LakeFile).spark_settings() == given
    with pytest.raises(
        ConfigurationError, match=r"settings .*access\.key.* has a secret in the file itself"
    ) as refused:
        load(written('profile = "production"\n', **given), LakeFile)
    assert "-OPEN" not in refused.value.message


def test_s9_a_setting_of_the_command_line_takes_no_reference(written):
    with pytest.raises(ConfigurationError, match="takes no reference to a secret"):
        load(written(**{"spark.driver.extraJavaOptions": "env:OPTIONS"}), LakeFile)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        load(written(**{f"{S3A}secret.key": "command:'print"}), LakeFile)
